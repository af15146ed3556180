// The public client over real servers: that each option and limit of a call is the one that was given.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::Quiet;
using testing::RunWorkers;

std::unique_ptr<Client> Alone(const EmbeddedCluster& cluster, int64_t call_timeout_ms = 60'000,
                              uint64_t max_unacked_bytes = uint64_t{1} << 20) {
  ClientOptions options = Quiet(cluster, 0);
  options.call_timeout_ms = call_timeout_ms;
  options.max_unacked_bytes = max_unacked_bytes;
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return std::move(client).value();
}

TEST(ClientCalls, FurtherSchedulersAreTriedToo) {
  auto cluster = Cluster(1, 1, 1);
  ClientOptions options = Quiet(*cluster, 0);
  options.more_schedulers = {{options.scheduler_host, options.scheduler_port}};
  options.scheduler_port = 1;  // nobody is there
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_CAIRN_OK((*client)->Finish());
}

TEST(ClientCalls, WhoIsThereIsCounted) {
  auto cluster = Cluster(3, 1, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    EXPECT_EQ(client.world_size(), 2u);
    EXPECT_EQ(client.server_count(), 3u);
    EXPECT_EQ(client.live_ranks(), (std::vector<uint32_t>{0, 1}));
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

// Worker 1 takes part in nothing: what waits for it ends when its own limit says, which is far below what
// this test waits for.
TEST(ClientCalls, EveryCallEndsAtTheLimitThatItWasGiven) {
  constexpr int64_t kFarBelowMs = 30'000;
  auto cluster = Cluster(1, 1, 2);
  std::unique_ptr<Client> impatient;
  std::thread joins([&] {
    ClientOptions options = Quiet(*cluster, 1);
    options.call_timeout_ms = 300;
    impatient = Client::Connect(options).value();
  });
  auto client = Alone(*cluster, 90'000);
  joins.join();
  const auto late = [](Pending call) {
    return call.WaitFor(kFarBelowMs) && call.Wait().code() == Code::kDeadlineExceeded;
  };
  EXPECT_TRUE(late(impatient->BeginBarrier())) << "the client's";
  TableSpec spec{.name = "n", .element = ElementType::kInt64, .mode = Mode::kSync, .size = 4};
  DenseTable counts = client->CreateDense(spec).value();
  std::vector<int64_t> one(4, 1), out(4);
  EXPECT_TRUE(late(counts.PushPull(one, out, {.timeout_ms = 100})));
  spec = {
      .name = "r", .kind = TableKind::kSparse, .element = ElementType::kInt64, .mode = Mode::kSync, .dim = 2};
  SparseTable rows = client->CreateSparse(spec).value();
  const std::vector<RowKey> keys = {1, 2};
  EXPECT_TRUE(late(rows.PushPull(keys, one, out, {.timeout_ms = 100})));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(rows.Keys({.timeout_ms = 100}).status().code(), Code::kDeadlineExceeded) << "behind the round";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(kFarBelowMs));
  EXPECT_NE(rows.Pull(keys, std::span<int64_t>(out), {.column = 1}).Wait().message().find("is of int64"),
            std::string::npos);
  DenseTable weights = client->CreateDense({.name = "w", .size = 4}).value();
  std::vector<float> values(4);
  EXPECT_TRUE(late(weights.Pull(values, {.timeout_ms = 100, .when_assigned = true})));
}

TEST(ClientCalls, WhoHasJoinedGivesNoGradient) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster);
  DenseTable table = client->CreateDense({.name = "w", .mode = Mode::kSync, .size = 4}).value();
  RoundInfo info;
  ASSERT_CAIRN_OK(table.Done({.joined = true, .info = &info}).Wait());
  EXPECT_TRUE(info.all_joined);
  EXPECT_EQ(table.Push(ConstPieces()).Wait().code(), Code::kInvalidArgument);
  ASSERT_CAIRN_OK(client->Finish());
}

TEST(ClientCalls, AWeightIsSaidByAllOrByNobody) {
  auto cluster = Cluster(1, 1, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    DenseTable table = client.CreateDense({.name = "w", .mode = Mode::kSync, .size = 4}).value();
    const std::vector<float> gradient(4, 1);
    EXPECT_EQ(table.Push(gradient, {.weighted = client.rank() == 0}).Wait().code(), Code::kHyperMismatch);
  });
}

TEST(ClientCalls, ManyTablesComeInTheirOrder) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster);
  EXPECT_TRUE(client->CreateTables({})->empty());
  std::vector<TableSpec> specs(520);  // more than one message takes
  for (size_t i = 0; i < specs.size(); ++i) specs[i] = {.name = "t" + std::to_string(i), .size = i + 1};
  const auto tables = client->CreateTables(specs);
  ASSERT_TRUE(tables.ok()) << tables.status().ToString();
  ASSERT_EQ(tables->size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) ASSERT_EQ(std::get<DenseTable>((*tables)[i]).size(), i + 1);
  for (TableSpec& spec : specs) spec.size += 1000;
  const Status exists = client->CreateTables(specs).status();
  EXPECT_EQ(exists.code(), Code::kAlreadyExists);
  EXPECT_NE(exists.message().find("\"t0\""), std::string::npos) << "the first: " << exists.message();
  specs.back() = {.name = "empty"};
  EXPECT_NE(client->CreateTables(specs).status().message().find("\"empty\""), std::string::npos);
  ASSERT_CAIRN_OK(client->Finish());
}

TEST(ClientCalls, SpecsThatCanNotBeAreExplained) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster);
  const auto dense = [&](TableSpec spec) { return client->CreateDense(std::move(spec)).status().message(); };
  EXPECT_EQ(dense({.size = 4}), "a table needs a name");
  EXPECT_EQ(dense({.name = "w", .size = 4, .dim = 2}),
            "table \"w\": dim is for sparse tables; a dense one has a size");
  EXPECT_EQ(client->CreateSparse({.name = "e", .size = 4, .dim = 2}).status().message(),
            "table \"e\": size is for dense tables; a sparse one has a dim");
  TableSpec pieces{.name = "p", .size = 70'000};
  for (uint64_t end = 1; end <= pieces.size; ++end) pieces.segments.push_back(end);
  EXPECT_EQ(dense(pieces), "table \"p\": at most 65536 segments, not 70000: join small tensors");
  DenseTable gone = client->CreateDense({.name = "g", .size = 4}).value();
  ASSERT_CAIRN_OK(client->DropTable("g"));
  std::vector<float> out(4);
  EXPECT_EQ(gone.Pull(out).Wait().message(),
            "table \"g\" was dropped: create it again and use the new handle");
  ASSERT_CAIRN_OK(client->Finish());
}

// A refused push gives back the room that it was promised.
TEST(ClientCalls, RefusedPushesTakeUpNoRoom) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster, 60'000, 1000);
  DenseTable table = client->CreateDense({.name = "w", .size = 100}).value();
  std::vector<float> bad(100, std::numeric_limits<float>::quiet_NaN()), good(100, 1), out(100);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(table.Push(bad, {.timeout_ms = 2000}).Wait().code(), Code::kNotFinite);
    EXPECT_EQ(table.PushPull(bad, out, {.timeout_ms = 2000}).Wait().code(), Code::kNotFinite);
  }
  for (int i = 0; i < 5; ++i) ASSERT_CAIRN_OK(table.PushPull(good, out, {.timeout_ms = 2000}).Wait());
  EXPECT_EQ(out, std::vector<float>(100, 5));
  ASSERT_CAIRN_OK(client->Finish());
}

TEST(ClientCalls, OfTheLargestWhatIsLeftComesWithTheNext) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster);
  for (const bool pull : {false, true}) {
    TableSpec spec{.name = pull ? "a" : "b", .size = 2, .wire = WireFormat::kTopK, .wire_topk = 0.5f};
    DenseTable table = client->CreateDense(spec).value();
    std::vector<float> out(2);
    const auto push = [&](std::vector<float> gradient) {
      return pull ? table.PushPull(gradient, out).Wait() : table.Push(gradient).Wait();
    };
    ASSERT_CAIRN_OK(push({3, 1}));
    ASSERT_CAIRN_OK(push({0, 0}));
    ASSERT_CAIRN_OK(table.Pull(out).Wait());
    EXPECT_EQ(out, (std::vector<float>{3, 1})) << spec.name;
  }
  ASSERT_CAIRN_OK(client->Finish());
}

TEST(ClientCalls, WhatAnAsyncPushSaysOfRoundsIsNothing) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster);
  DenseTable table = client->CreateDense({.name = "w", .size = 4}).value();
  const std::vector<float> gradient(4, 1);
  std::vector<float> out(4);
  for (const bool pull : {false, true}) {
    RoundInfo info{.sum_squares = 5, .finite = false, .all_joined = true};
    ASSERT_CAIRN_OK(pull ? table.PushPull(gradient, out, {.info = &info}).Wait()
                         : table.Push(gradient, {.info = &info}).Wait());
    EXPECT_EQ(info.sum_squares, 0);
    EXPECT_TRUE(info.finite);
    EXPECT_FALSE(info.all_joined);
  }
  ASSERT_CAIRN_OK(client->Finish());
}

TEST(ClientCalls, AnOperationThatIsReplacedIsWaitedFor) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster);
  DenseTable table = client->CreateDense({.name = "w", .size = 300'000, .init = Init::Constant(3)}).value();
  std::vector<float> out(300'000);
  Pending pulled = table.Pull(out);
  pulled = Pending();
  EXPECT_EQ(out, std::vector<float>(300'000, 3));
  Pending again = table.Pull(out);
  EXPECT_TRUE(again.WaitFor(std::numeric_limits<int64_t>::max()));
  ASSERT_CAIRN_OK(client->Finish());
}

TEST(ClientCalls, TrafficIsThatOfThisWorker) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Alone(*cluster, 60'000, uint64_t{16} << 20);
  DenseTable table = client->CreateDense({.name = "w", .size = 500'000}).value();
  const std::vector<float> gradient(500'000, 1);
  const Client::Traffic before = client->traffic().value();
  ASSERT_CAIRN_OK(table.Push(gradient).Wait());
  const Client::Traffic after = client->traffic().value();
  EXPECT_GE(after.sent - before.sent, 2'000'000u);
  EXPECT_LT(after.received - before.received, 1'000'000u);
  ASSERT_CAIRN_OK(client->Finish());
}

// What docs and users rely on; a change is one of the interface.
TEST(Defaults, AreThoseThatAreDocumented) {
  const ClientOptions client;
  EXPECT_EQ(client.connect_timeout_ms, 120'000);
  EXPECT_EQ(client.call_timeout_ms, 1'800'000);
  EXPECT_EQ(client.max_unacked_bytes, uint64_t{64} << 20);
  EXPECT_EQ(client.rank, -1);
  EXPECT_EQ(client.scheduler_host, "127.0.0.1");
  const EmbeddedOptions embedded;
  EXPECT_EQ(embedded.slots, 256u);
  EXPECT_EQ(embedded.servers, 1u);
  EXPECT_EQ(embedded.heartbeat_ms, 1'000);
  EXPECT_EQ(embedded.dead_after_ms, 5'000);
  EXPECT_EQ(embedded.rejoin_grace_ms, 30'000);
  EXPECT_EQ(embedded.deadlock_after_ms, 60'000);
  EXPECT_EQ(Hyper(), (Hyper{0.01, 0, 0, 0, 0, 0, 0}));
  const PushOptions push;
  EXPECT_EQ(push.weight, 1);
  EXPECT_EQ(push.value_scale, 1);
  EXPECT_FALSE(push.weighted || push.borrow);
  const PushPullOptions both;
  EXPECT_EQ(both.weight, 1);
  EXPECT_EQ(both.value_scale, 1);
  EXPECT_FALSE(both.weighted);
  const DoneOptions done;
  EXPECT_EQ(done.weight, 1);
  EXPECT_FALSE(done.weighted || done.joined);
  const ContributeOptions contribute;
  EXPECT_EQ(contribute.weight, 1);
  EXPECT_EQ(contribute.value_scale, 1);
  EXPECT_FALSE(contribute.weighted || contribute.joined || contribute.not_finite);
  const DecideOptions decide;
  EXPECT_EQ(decide.weight, 1);
  EXPECT_EQ(decide.scale, 1);
  EXPECT_FALSE(decide.joined || decide.skip);
}

}  // namespace
}  // namespace cairn

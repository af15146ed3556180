// Client::Trip over real servers: what is sent when, and how many round trips the servers count.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <thread>

#include "raw_peer.h"
#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::RawPeer;
using testing::RunWorkers;

constexpr size_t kTables = 20;
constexpr size_t kRows = 300;  // every shard thread has some of them
constexpr uint32_t kThreads = 2;

struct Rows {
  SparseTable table;
  std::vector<RowKey> keys;
  std::vector<float> gradient, out;

  Rows(Client& client, const std::string& name, Mode mode)
      : keys(kRows), gradient(2 * kRows, 1), out(2 * kRows, -9) {
    auto made = client.CreateSparse({.name = name, .mode = mode, .optimizer = OptimizerKind::kSgd, .dim = 2});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    table = std::move(made).value();
    for (size_t i = 0; i < kRows; ++i) keys[i] = i * 77;
  }
  Pending Pull() { return table.Pull(keys, out); }
  Pending Push() { return table.Push(keys, gradient, {.hyper = {.lr = 1}}); }
  Pending PushPull() { return table.PushPull(keys, gradient, out, {.hyper = {.lr = 1}}); }
  bool All(float value) const { return out == std::vector<float>(2 * kRows, value); }
};

std::vector<Rows> Tables(Client& client, Mode mode, size_t count = kTables) {
  std::vector<Rows> tables;
  for (size_t i = 0; i < count; ++i) tables.emplace_back(client, "t" + std::to_string(i), mode);
  return tables;
}

// What the servers have last reported to the scheduler.
class Reports {
 public:
  explicit Reports(const EmbeddedCluster& cluster) : peer_(cluster.scheduler_port()) {}
  // Round trips of every server, as of when each has counted so many pulls more than at the last
  // call of this (servers report now and then). A pull counts once on every thread.
  std::vector<uint64_t> TripsAfter(uint64_t pulls) {
    pulls_ += pulls * kThreads;
    for (int i = 0; i < 20'000; ++i) {
      const nlohmann::json servers = Ask().at("servers");
      std::vector<uint64_t> trips;
      bool reached = true;
      for (const auto& server : servers) {
        const auto& stats = server.at("stats");
        reached &= stats.at("pulls").get<uint64_t>() >= pulls_;
        trips.push_back(stats.at("round_trips").get<uint64_t>());
      }
      if (reached) return trips;
    }
    ADD_FAILURE() << "the servers have not reported " << pulls_ << " pulls: " << Ask().dump();
    return {};
  }

 private:
  nlohmann::json Ask() {
    EXPECT_TRUE(peer_.Send(wire::ControlMessage(wire::StatusRequest{++request_})));
    const auto reply = peer_.Await<wire::StatusReply>();
    return reply ? nlohmann::json::parse(reply->json) : nlohmann::json::object();
  }
  RawPeer peer_;
  uint64_t request_ = 0, pulls_ = 0;
};

std::unique_ptr<EmbeddedCluster> Reporting(uint32_t servers) {
  auto cluster = EmbeddedCluster::Start(
      {.servers = servers, .workers = 1, .threads_per_server = kThreads, .heartbeat_ms = 20});
  EXPECT_TRUE(cluster.ok());
  return std::move(cluster).value();
}

void WaitForAll(std::vector<Pending>& calls) {
  for (Pending& call : calls) EXPECT_TRUE(call.Wait().ok());
  calls.clear();
}

TEST(Trips, TwentyTablesAreOneRoundTripOnEveryServer) {
  struct Case {
    Mode mode;
    uint32_t servers;
    uint64_t pulls;  // of a step, as servers count: an async push-pull is a push and a pull
  };
  for (const Case& c : {Case{Mode::kAsync, 1, 2 * kTables}, Case{Mode::kSync, 3, kTables}}) {
    auto cluster = Reporting(c.servers);
    Reports reports(*cluster);
    RunWorkers(*cluster, 1, [&](Client& client) {
      std::vector<Rows> tables = Tables(client, c.mode);
      std::vector<Pending> calls;
      for (Rows& rows : tables) calls.push_back(rows.Pull());  // one by one, each is a trip
      WaitForAll(calls);
      EXPECT_EQ(reports.TripsAfter(kTables), std::vector<uint64_t>(c.servers, kTables));
      {
        Client::Trip nothing(client);
      }
      {
        Client::Trip trip(client);
        for (Rows& rows : tables) calls.push_back(rows.Pull());
        for (const Pending& call : calls) EXPECT_FALSE(call.ready());
      }
      WaitForAll(calls);
      EXPECT_EQ(reports.TripsAfter(kTables), std::vector<uint64_t>(c.servers, kTables + 1));
      {  // a step: new values and, behind them, the next batch's rows
        Client::Trip trip(client);
        for (Rows& rows : tables) calls.push_back(rows.PushPull());
        for (Rows& rows : tables) calls.push_back(rows.Pull());
      }
      WaitForAll(calls);
      EXPECT_EQ(reports.TripsAfter(c.pulls), std::vector<uint64_t>(c.servers, kTables + 2));
      for (const Rows& rows : tables) EXPECT_TRUE(rows.All(-1));
    });
  }
}

TEST(Trips, WhoWaitsInATripSendsItEarly) {
  auto cluster = Cluster(2, 2, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    std::vector<Rows> tables = Tables(client, Mode::kAsync, 3);
    Client::Trip trip(client);
    Pending pushed = tables[0].Push();
    Pending pulled = tables[0].Pull();
    ASSERT_CAIRN_OK(pulled.Wait());
    EXPECT_TRUE(tables[0].All(-1));
    EXPECT_TRUE(pushed.WaitFor(30'000));
    // Calls that block by themselves do the same, in their order.
    Pending second = tables[0].Push();
    EXPECT_EQ(tables[0].table.Keys()->size(), kRows);
    Pending third = tables[0].Push();
    ASSERT_CAIRN_OK(client.Barrier());
    EXPECT_TRUE(third.WaitFor(30'000));
    // A Pending that is dropped waits.
    {
      Pending dropped = tables[1].Pull();
    }
    EXPECT_TRUE(tables[1].All(0));
  });
}

TEST(Trips, AnErrorOnTheWayDoesNotKeepWhatWasBegun) {
  auto cluster = Cluster(2, 2, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    Rows rows(client, "t", Mode::kAsync);
    Pending pushed;
    try {
      Client::Trip trip(client);
      pushed = rows.Push();
      Pending refused = rows.table.Push(rows.keys, std::span<const float>(rows.gradient).first(3));
      EXPECT_TRUE(refused.ready());
      EXPECT_EQ(refused.Wait().code(), Code::kInvalidArgument);
      EXPECT_FALSE(pushed.ready());
      throw std::runtime_error("in the body");
    } catch (const std::runtime_error&) {
    }
    ASSERT_CAIRN_OK(pushed.Wait());
    ASSERT_CAIRN_OK(rows.Pull().Wait());
    EXPECT_TRUE(rows.All(-1));
  });
}

TEST(Trips, NestedAndOnOtherThreads) {
  auto cluster = Cluster(2, 2, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    std::vector<Rows> tables = Tables(client, Mode::kAsync, 3);
    std::optional<Pending> outer, inner, after;
    auto trip = std::make_unique<Client::Trip>(client);
    outer = tables[0].Pull();
    {
      Client::Trip within(client);
      inner = tables[1].Pull();
    }
    // Others are not held up by it.
    std::thread([&] { EXPECT_TRUE(tables[2].Pull().Wait().ok()); }).join();
    EXPECT_TRUE(tables[2].All(0));
    after = tables[2].Pull();
    EXPECT_FALSE(outer->ready() || inner->ready() || after->ready());
    std::thread([&] { trip.reset(); }).join();  // ends where it did not begin
    ASSERT_CAIRN_OK(outer->Wait());
    ASSERT_CAIRN_OK(inner->Wait());
    ASSERT_CAIRN_OK(after->Wait());
    ASSERT_CAIRN_OK(tables[0].Pull().Wait());  // and this thread is out of it
    // Another thread may wait for a trip's call, and sends it.
    Client::Trip last(client);
    Pending awaited = tables[0].Push();
    std::thread([&] { EXPECT_TRUE(awaited.Wait().ok()); }).join();
  });
}

// The bound on unacknowledged bytes is reached by the trip itself.
TEST(Trips, PushesBeyondTheBoundDoNotWaitForThemselves) {
  auto cluster = Cluster(1, 1, 1);
  ClientOptions options = testing::Quiet(*cluster, 0);
  options.max_unacked_bytes = 10'000;  // less than three of them
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok());
  Rows rows(**client, "t", Mode::kAsync);
  std::vector<Pending> calls;
  {
    Client::Trip trip(**client);
    for (int i = 0; i < 10; ++i) calls.push_back(rows.Push());
  }
  WaitForAll(calls);
  ASSERT_CAIRN_OK(rows.Pull().Wait());
  EXPECT_TRUE(rows.All(-10));
  ASSERT_CAIRN_OK((*client)->Finish());
}

TEST(Trips, AClientThatIsClosedEndsThem) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Client::Connect(testing::Quiet(*cluster, 0));
  ASSERT_TRUE(client.ok());
  Rows rows(**client, "t", Mode::kSync);
  auto trip = std::make_unique<Client::Trip>(**client);
  Pending pulled = rows.Pull();
  (*client)->Close();
  EXPECT_TRUE(pulled.ready());  // with its values, or without
  const Status late = rows.Pull().Wait();
  EXPECT_EQ(late.code(), Code::kCancelled);
  client->reset();
  trip.reset();
}

}  // namespace
}  // namespace cairn

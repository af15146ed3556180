// The whole cluster over real sockets inside one process: what workers push is what they pull, in
// every kind of table, and everybody gets to the end.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "cairn/client.h"
#include "cairn/embedded.h"
#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::Quiet;
using testing::RunWorkers;

constexpr uint32_t kWorkers = 3;

TEST(Cluster, AsyncDenseSumsAreExact) {
  auto cluster = Cluster();
  constexpr uint64_t kSize = 100'003;
  constexpr int kPushes = 20;
  RunWorkers(*cluster, kWorkers, [&](Client& client) {
    auto table = client.CreateDense(
        {.name = "counts", .element = ElementType::kInt64, .optimizer = OptimizerKind::kSum, .size = kSize});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    std::vector<int64_t> values(kSize);
    for (int push = 0; push < kPushes; ++push) {
      for (uint64_t i = 0; i < kSize; ++i)
        values[i] = static_cast<int64_t>(Mix64(i, push * 31 + client.rank()));
      std::ignore = table->Push(values);  // dropped without waiting: it goes on
    }
    ASSERT_CAIRN_OK(table->PushPull(std::vector<int64_t>(kSize, 0), values).Wait());
    ASSERT_CAIRN_OK(client.Barrier());
    ASSERT_CAIRN_OK(table->Pull(values).Wait());
    for (uint64_t i = 0; i < kSize; ++i) {
      uint64_t expected = 0;  // wraps, as the table does
      for (int push = 0; push < kPushes; ++push) {
        for (uint32_t rank = 0; rank < kWorkers; ++rank) expected += Mix64(i, push * 31 + rank);
      }
      ASSERT_EQ(values[i], static_cast<int64_t>(expected)) << i;
    }
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

TEST(Cluster, AsyncSparseSumsAreExactAndPushPullSeesItsOwnPush) {
  auto cluster = Cluster();
  constexpr uint32_t kDim = 4;
  RunWorkers(*cluster, kWorkers, [&](Client& client) {
    auto table = client.CreateSparse(
        {.name = "rows", .element = ElementType::kInt64, .optimizer = OptimizerKind::kSum, .dim = kDim});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    // Keys of its own: what it reads back is exactly what it has pushed.
    Random random(client.rank());
    std::vector<RowKey> keys(1000);
    std::vector<int64_t> rows(keys.size() * kDim), back(rows.size()), sums(rows.size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = random.Next() * kWorkers + client.rank();
    for (int push = 0; push < 50; ++push) {
      for (size_t i = 0; i < rows.size(); ++i) sums[i] += rows[i] = static_cast<int64_t>(random.Next() >> 20);
      ASSERT_CAIRN_OK(table->PushPull(keys, rows, back).Wait());
      ASSERT_EQ(back, sums);
    }
    // Keys of all: a repeated key counts as often as it stands there.
    const std::vector<RowKey> shared{7, 7, 9};
    const std::vector<int64_t> ones(shared.size() * kDim, 1);
    ASSERT_CAIRN_OK(table->Push(shared, ones).Wait());
    ASSERT_CAIRN_OK(client.Barrier());
    const std::vector<RowKey> asked{7, 9, 12345};
    std::vector<int64_t> got(asked.size() * kDim);
    ASSERT_CAIRN_OK(table->Pull(asked, got).Wait());
    EXPECT_EQ(got[0], 2 * kWorkers);
    EXPECT_EQ(got[kDim], kWorkers);
    EXPECT_EQ(got[2 * kDim], 0);
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

TEST(Cluster, SyncRoundsApplyTheMeanOnceForEverybody) {
  auto cluster = Cluster();
  constexpr uint64_t kSize = 50'000;
  constexpr int kRounds = 30;
  RunWorkers(*cluster, kWorkers, [&](Client& client) {
    auto table = client.CreateDense(
        {.name = "w", .mode = Mode::kSync, .optimizer = OptimizerKind::kSgd, .size = kSize});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    std::vector<float> gradient(kSize), weights(kSize, -1);
    ASSERT_CAIRN_OK(table->Pull(weights).Wait());
    EXPECT_EQ(weights, std::vector<float>(kSize, 0));
    for (int round = 1; round <= kRounds; ++round) {
      // Powers of two and small integers: every order of summation is exact. Mean = 2 per round.
      for (uint64_t i = 0; i < kSize; ++i) gradient[i] = static_cast<float>(client.rank() + 1);
      ASSERT_CAIRN_OK(table->PushPull(gradient, weights, {.hyper = {.lr = 0.5f}}).Wait());
      ASSERT_EQ(weights, std::vector<float>(kSize, -static_cast<float>(round)));
    }
    // A worker without a gradient counts in the mean: (1 + 2 + 0) / 3.
    if (client.rank() == 2) {
      ASSERT_CAIRN_OK(table->Done({.hyper = {.lr = 1}}).Wait());
    } else {
      ASSERT_CAIRN_OK(table->Push(gradient, {.hyper = {.lr = 1}}).Wait());
    }
    ASSERT_CAIRN_OK(table->Pull(weights).Wait());
    EXPECT_EQ(weights[17], -static_cast<float>(kRounds) - 1);
  });
}

TEST(Cluster, SyncSparseRoundsWithWeights) {
  auto cluster = Cluster();
  RunWorkers(*cluster, kWorkers, [&](Client& client) {
    auto table = client.CreateSparse({.name = "emb",
                                      .mode = Mode::kSync,
                                      .optimizer = OptimizerKind::kSgd,
                                      .deterministic = true,
                                      .dim = 2});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    for (int round = 1; round <= 10; ++round) {
      const std::vector<RowKey> keys{1000, 5000 + client.rank()};
      const std::vector<float> rows{4, 4, 4, 4};
      std::vector<float> out(4);
      const double weight = client.rank() == 0 ? 2 : 1;  // 2 + 1 + 1 = 4
      ASSERT_CAIRN_OK(table->PushPull(keys, rows, out, {.hyper = {.lr = 1}, .weight = weight}).Wait());
      EXPECT_EQ(out[0], -4.0f * static_cast<float>(round));
      EXPECT_EQ(out[2], -4.0f * static_cast<float>(round) * static_cast<float>(weight) / 4);
    }
  });
}

// The bound on unacknowledged bytes makes the caller wait, it loses nothing. A model larger than
// the bound trains in rounds: contributions are not counted.
TEST(Cluster, PushesBeyondTheBoundWaitAndArrive) {
  auto cluster = Cluster(1, 2, 1);
  ClientOptions options = Quiet(*cluster, 0);
  options.max_unacked_bytes = 100'000;
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  constexpr uint64_t kSize = 20'000;  // 160 kB
  auto counts = (*client)->CreateDense(
      {.name = "counts", .element = ElementType::kInt64, .optimizer = OptimizerKind::kSum, .size = kSize});
  ASSERT_TRUE(counts.ok());
  const std::vector<int64_t> ones(kSize, 1);
  for (int i = 0; i < 100; ++i) std::ignore = counts->Push(ones);
  std::vector<int64_t> sums(kSize);
  ASSERT_CAIRN_OK(counts->PushPull(ones, sums).Wait());
  EXPECT_EQ(sums, std::vector<int64_t>(kSize, 101));
  auto weights = (*client)->CreateDense({.name = "w", .mode = Mode::kSync, .size = 1'000'000});
  ASSERT_TRUE(weights.ok());
  std::vector<float> gradient(1'000'000, 1), out(1'000'000);
  ASSERT_CAIRN_OK(weights->PushPull(gradient, out).Wait());
  EXPECT_EQ(out, gradient);
  ASSERT_CAIRN_OK((*client)->Finish());
}

TEST(Cluster, MistakesAreNamedAndChangeNothing) {
  auto cluster = Cluster(1, 1, 1);
  auto client = Client::Connect(Quiet(*cluster, 0));
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_EQ((*client)->world_size(), 1u);
  EXPECT_EQ((*client)->server_count(), 1u);
  EXPECT_FALSE((*client)->cluster_id().empty());
  EXPECT_EQ((*client)->CreateDense({.name = "w"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ((*client)->CreateSparse({.name = "e"}).status().code(), Code::kInvalidArgument);
  auto table = (*client)->CreateDense({.name = "w", .size = 10});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ((*client)->CreateDense({.name = "w", .size = 11}).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE((*client)->CreateDense({.name = "w", .size = 10}).ok());
  const std::vector<float> nine(9), empty;
  EXPECT_EQ(table->Push(nine).Wait().code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Push(empty).Wait().code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Push(std::vector<int64_t>(10)).Wait().code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Done().Wait().code(), Code::kInvalidArgument);
  std::vector<float> bad(10, 1), out(10, 5), short_out(3);
  EXPECT_EQ(table->PushPull(bad, short_out).Wait().code(), Code::kInvalidArgument);
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(table->Push(bad).Wait().code(), Code::kNotFinite);
  EXPECT_EQ(table->PushPull(bad, out).Wait().code(), Code::kNotFinite);
  ASSERT_CAIRN_OK(table->Pull(out).Wait());
  EXPECT_EQ(out, std::vector<float>(10, 0));
  auto sync = (*client)->CreateDense({.name = "s", .mode = Mode::kSync, .size = 4});
  ASSERT_TRUE(sync.ok());
  EXPECT_EQ(sync->Push(empty).Wait().code(), Code::kInvalidArgument);
  ASSERT_CAIRN_OK((*client)->DropTable("w"));
  EXPECT_EQ(table->Pull(out).Wait().code(), Code::kNotFound);
  auto sparse = (*client)->CreateSparse({.name = "e", .dim = 2});
  ASSERT_TRUE(sparse.ok());
  ASSERT_CAIRN_OK(sparse->Push(std::vector<RowKey>{}, std::vector<float>{}).Wait());  // nothing is not wrong
  ASSERT_CAIRN_OK((*client)->Finish());
  EXPECT_EQ(sparse->Push(std::vector<RowKey>{1}, std::vector<float>{1, 1}).Wait().code(), Code::kCancelled);
}

TEST(Cluster, ACallEndsAtItsDeadlineAndNamesWhoIsMissing) {
  auto cluster = Cluster(1, 1, 2);
  std::atomic<bool> waited{false};
  RunWorkers(*cluster, 2, [&](Client& client) {
    auto table = client.CreateDense({.name = "w", .mode = Mode::kSync, .size = 100'000});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    if (client.rank() == 0) {
      std::vector<float> gradient(100'000, 1);
      const Status late = table->Push(gradient, {.timeout_ms = 200}).Wait();
      EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.ToString();
      EXPECT_NE(late.message().find("1"), std::string::npos) << late.ToString();
      waited = true;
      waited.notify_all();
    } else {
      waited.wait(false);
      ASSERT_CAIRN_OK(table->Done().Wait());
    }
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

TEST(Cluster, ClosingAClientEndsItsCalls) {
  auto cluster = Cluster(1, 1, 2);
  auto connect = [&](int32_t rank) { return Client::Connect(Quiet(*cluster, rank)); };
  Result<std::unique_ptr<Client>> one(Code::kInternal, "not yet");
  std::thread other([&] { one = connect(1); });
  auto zero = connect(0);
  other.join();
  ASSERT_TRUE(zero.ok() && one.ok());
  auto table = (*zero)->CreateDense({.name = "w", .mode = Mode::kSync, .size = 1000});
  ASSERT_TRUE(table.ok());
  const std::vector<float> gradient(1000, 1);
  Pending pending = table->Push(gradient);  // waits for worker 1, who never comes
  zero->reset();
  EXPECT_TRUE(pending.ready());
  EXPECT_EQ(pending.Wait().code(), Code::kCancelled) << pending.Wait().ToString();
  EXPECT_EQ(table->Push(gradient).Wait().code(), Code::kCancelled);
}

TEST(Cluster, AClientThatFindsNobodySaysSo) {
  ClientOptions options;
  options.scheduler_port = 1;
  options.connect_timeout_ms = 300;
  options.log = [](const std::string&) {};
  const auto client = Client::Connect(options);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), Code::kDeadlineExceeded) << client.status().ToString();
  EXPECT_NE(client.status().message().find("127.0.0.1:1"), std::string::npos) << client.status().ToString();
}

}  // namespace
}  // namespace cairn

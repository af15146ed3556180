// Bounded tables over real servers: no read lacks what others have pushed below its bound, and nobody waits
// for who is gone or done.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::RunWorkers;

TableSpec Counts(uint32_t workers, uint32_t staleness) {
  TableSpec spec{.name = "counts", .element = ElementType::kInt64, .size = workers};
  spec.staleness = staleness;
  return spec;
}

TEST(Bounded, EveryReadHasAllStepsBelowItsBound) {
  constexpr uint32_t kWorkers = 3;
  constexpr int64_t kSteps = 200;
  for (const uint32_t staleness : {0u, 2u}) {
    const auto cluster = Cluster(2, 2, kWorkers);
    RunWorkers(*cluster, kWorkers, [&](Client& client) {
      auto table = client.CreateDense(Counts(kWorkers, staleness));
      ASSERT_CAIRN_OK(table.status());
      std::vector<int64_t> seen(kWorkers), one(kWorkers);
      one[client.rank()] = 1;
      for (int64_t step = 0; step < kSteps; ++step) {
        ASSERT_CAIRN_OK(table->Pull(seen).Wait());
        EXPECT_GE(*std::ranges::min_element(seen), step - staleness) << "step " << step;
        EXPECT_LE(seen[client.rank()], step);
        (void)table->Push(one);
        ASSERT_CAIRN_OK(table->EndStep({.last = step + 1 == kSteps}));
      }
      const auto staleness_seen = client.staleness();
      ASSERT_CAIRN_OK(staleness_seen.status());
      EXPECT_FALSE(staleness_seen->empty());
      EXPECT_LE(staleness_seen->size(), size_t{staleness} + 1);
    });
  }
}

TEST(Bounded, WhoHasLeftIsNotWaitedFor) {
  const auto cluster = Cluster(1, 1, 2);
  std::atomic<bool> left{false};
  std::thread other([&] {
    auto client = Client::Connect(testing::Quiet(*cluster, 1));
    ASSERT_CAIRN_OK(client.status());
    auto table = (*client)->CreateDense(Counts(2, 0));
    ASSERT_CAIRN_OK(table.status());
    ASSERT_CAIRN_OK((*client)->Barrier());
    ASSERT_CAIRN_OK((*client)->Finish());
    left = true;
  });
  auto client = Client::Connect(testing::Quiet(*cluster, 0));
  ASSERT_CAIRN_OK(client.status());
  auto table = (*client)->CreateDense(Counts(2, 0));
  ASSERT_CAIRN_OK(table.status());
  ASSERT_CAIRN_OK((*client)->Barrier());
  std::vector<int64_t> seen(2);
  for (int step = 0; step < 5; ++step) {
    ASSERT_CAIRN_OK(table->Pull(seen).Wait());
    ASSERT_CAIRN_OK(table->EndStep());
  }
  other.join();
  EXPECT_TRUE(left);
  ASSERT_CAIRN_OK((*client)->Finish());
}

TEST(Bounded, StepsOfOtherTablesDoNotEnd) {
  const auto cluster = Cluster(1, 1, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    auto table = client.CreateDense({.name = "plain", .size = 4});
    ASSERT_CAIRN_OK(table.status());
    EXPECT_EQ(table->EndStep().code(), Code::kInvalidArgument);
    TableSpec sync{.name = "sync", .mode = Mode::kSync, .size = 4};
    sync.staleness = 1;
    EXPECT_EQ(client.CreateDense(sync).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(client.CreateDense(Counts(1, 1)).status().code(), Code::kOk);
    EXPECT_EQ(client.CreateDense(Counts(1, 2)).status().code(), Code::kAlreadyExists);
  });
}

}  // namespace
}  // namespace cairn

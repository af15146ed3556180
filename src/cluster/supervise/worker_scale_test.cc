#include "cluster/supervise/worker_scale.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

using Ranks = std::vector<uint32_t>;

TEST(WorkerScale, MoreAreStartedAndTheHighestRanksGo) {
  WorkerScale scale({.workers = 2, .leave_grace_ms = 30});
  EXPECT_FALSE(scale.Follow(0, {0, 1}, 0).any()) << "nobody has asked";
  EXPECT_FALSE(scale.Follow(2, {0, 1}, 0).any());
  EXPECT_EQ(scale.Follow(4, {0, 1}, 0).start, (Ranks{2, 3}));
  EXPECT_FALSE(scale.Follow(4, {0, 1, 2, 3}, 1).any());
  EXPECT_EQ(scale.Follow(1, {0, 1, 2, 3}, 10).dismiss, (Ranks{1, 2, 3}));
  EXPECT_FALSE(scale.Follow(2, {0, 1, 2, 3}, 20).any()) << "they have been told";
  EXPECT_TRUE(scale.IsDismissed(3));
  EXPECT_FALSE(scale.OnDismissedEnd(3));
  EXPECT_FALSE(scale.IsDismissed(3));
  EXPECT_TRUE(scale.TakeLate(39).empty());
  EXPECT_EQ(scale.TakeLate(40), (Ranks{1, 2}));
  EXPECT_TRUE(scale.TakeLate(41).empty()) << "each is told once";
}

TEST(WorkerScale, WhoWentComesBackAndWhoFinishedDoesNot) {
  WorkerScale scale({.workers = 3, .leave_grace_ms = 30});
  EXPECT_EQ(scale.Follow(1, {0, 1, 2}, 0).dismiss, (Ranks{1, 2}));
  EXPECT_FALSE(scale.OnDismissedEnd(1));
  // Rank 2 is still on its way out when three are wanted again.
  EXPECT_EQ(scale.Follow(3, {0, 2}, 5).start, (Ranks{1}));
  EXPECT_TRUE(scale.OnDismissedEnd(2));
  // Rank 0 has finished by itself: nobody starts it again.
  EXPECT_EQ(scale.Follow(4, {1, 2}, 6).start, (Ranks{3}));
}

TEST(WorkerScale, WhoIsCalledIsToComeUntilItsProcessHasEnded) {
  using Set = std::set<uint32_t>;
  WorkerScale scale({.workers = 3, .leave_grace_ms = 30});
  EXPECT_EQ(scale.called(), Set{});
  EXPECT_EQ(scale.Follow(2, {0, 1, 2}, 0).dismiss, (Ranks{2}));
  EXPECT_EQ(scale.called(), Set{});
  scale.OnDismissedEnd(2);
  EXPECT_EQ(scale.Follow(3, {0, 1}, 5).start, (Ranks{2}));
  EXPECT_EQ(scale.called(), Set{2});
  // Sent away, and wanted again before it has gone.
  scale.Follow(2, {0, 1, 2}, 6);
  EXPECT_EQ(scale.called(), Set{});
  EXPECT_FALSE(scale.has_one_to_call());
  scale.Follow(3, {0, 1, 2}, 7);
  EXPECT_TRUE(scale.has_one_to_call());
  EXPECT_TRUE(scale.OnDismissedEnd(2));
  EXPECT_FALSE(scale.has_one_to_call());
  EXPECT_EQ(scale.called(), Set{2});
  scale.Follow(4, {0, 1, 2}, 8);
  EXPECT_EQ(scale.called(), (Set{2, 3}));
  scale.OnEnd(2);
  EXPECT_EQ(scale.called(), Set{3}) << "done, or given up: nobody waits for it";
}

TEST(WorkerScale, OnSeveralMachinesEachSendsItsOwnAwayAndNode0StartsTheFurtherOnes) {
  WorkerScale first({.nodes = 2, .node_rank = 0, .workers = 2}),
      second({.nodes = 2, .node_rank = 1, .workers = 2});
  EXPECT_EQ(first.Follow(5, {0, 1}, 0).start, (Ranks{4}));
  EXPECT_FALSE(second.Follow(5, {2, 3}, 0).any());
  EXPECT_EQ(first.Follow(3, {0, 1, 4}, 1).dismiss, (Ranks{4}));
  EXPECT_EQ(second.Follow(3, {2, 3}, 1).dismiss, (Ranks{3}));
  EXPECT_EQ(first.on_this_node(), 3u);
  EXPECT_FALSE(second.OnDismissedEnd(3));
  EXPECT_EQ(second.Follow(4, {2}, 2).start, (Ranks{3}));
}

}  // namespace
}  // namespace cairn::cluster

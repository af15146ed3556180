#include "client/protocol/barrier_ranks.h"

#include <gtest/gtest.h>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

using Ranks = std::vector<uint32_t>;

TEST(BarrierRanks, AreThoseWhoAreNotMissing) {
  wire::ClusterState state = FakeCluster().state;
  state.workers.push_back({Rank{2}, Incarnation{9}, ViewNumber{1}, {}});
  state.workers.push_back({Rank{3}, Incarnation{10}, ViewNumber{0}, {}});  // not in a view yet
  EXPECT_EQ(RanksInBarrier(state, "barrier 12: rank 1 has not arrived"), (Ranks{0, 2}));
  EXPECT_EQ(RanksInBarrier(state, "barrier 1: ranks 0, 2 have not arrived"), Ranks{1});
  EXPECT_EQ(RanksInBarrier(state,
                           "view 2: server 0 has not reported the open rounds; barrier 1: rank 0 "
                           "has not arrived; rank 4 is dead, not yet restarted"),
            (Ranks{1, 2}));
}

TEST(BarrierRanks, AreNobodyWhereTheWordsAreOthers) {
  const wire::ClusterState state = FakeCluster().state;
  for (const char* words :
       {"", "; ", "rank 1 is dead, not yet restarted", "barrier", "barrier x: rank 1 has not arrived",
        "barrier 1: rank", "barrier 1: ranks 0, and 7 more have not arrived",
        "barrier 1: ranks 2, 3 and 90 more have not arrived", "barrier 1: rank 1 has not arrived yet"}) {
    EXPECT_EQ(RanksInBarrier(state, words), Ranks{}) << words;
  }
}

}  // namespace
}  // namespace cairn::client

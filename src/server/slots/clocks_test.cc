#include "server/slots/clocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn::server {
namespace {

wire::ClusterState With(const std::vector<uint32_t>& ranks) {
  wire::ClusterState state;
  for (uint32_t rank : ranks) {
    wire::WorkerInfo worker;
    worker.rank = Rank{rank};
    worker.incarnation = Incarnation{100 + uint64_t{rank}};
    worker.join_view = ViewNumber{1};
    state.workers.push_back(worker);
  }
  return state;
}
Incarnation Of(uint32_t rank) { return Incarnation{100 + uint64_t{rank}}; }

TEST(Clocks, TheSlowestCountsAndWhoHasToldNothingIsAtZero) {
  Clocks clocks;
  clocks.SetWorkers(With({0, 1, 2}));
  clocks.Told(Of(0), Round{5}, false);
  clocks.Told(Of(1), Round{7}, false);
  EXPECT_EQ(clocks.lowest(), Round{0});
  EXPECT_EQ(clocks.RanksBelow(Round{1}), std::vector<uint32_t>{2});
  clocks.Told(Of(2), Round{6}, false);
  EXPECT_EQ(clocks.lowest(), Round{5});
  EXPECT_EQ(clocks.RanksBelow(Round{7}), (std::vector<uint32_t>{0, 2}));
}

TEST(Clocks, AnOlderClockChangesNothing) {
  Clocks clocks;
  clocks.SetWorkers(With({0, 1}));
  clocks.Told(Of(0), Round{4}, false);
  clocks.Told(Of(1), Round{3}, false);
  clocks.Told(Of(1), Round{2}, false);
  EXPECT_EQ(clocks.lowest(), Round{3});
}

TEST(Clocks, TheDeadDoNotCount) {
  Clocks clocks;
  clocks.SetWorkers(With({0, 1}));
  clocks.Told(Of(0), Round{4}, false);
  EXPECT_EQ(clocks.lowest(), Round{0});
  clocks.SetWorkers(With({0}));
  EXPECT_EQ(clocks.lowest(), Round{4});
  EXPECT_FALSE(clocks.Counts(Of(1)));
}

TEST(Clocks, WhoRegisteredOnlyDoesNotCountYet) {
  Clocks clocks;
  wire::ClusterState state = With({0, 1});
  state.workers[1].join_view = ViewNumber{0};
  clocks.SetWorkers(state);
  EXPECT_FALSE(clocks.Counts(Of(1)));
  clocks.Told(Of(0), Round{4}, false);
  EXPECT_EQ(clocks.lowest(), Round{4});
  clocks.SetWorkers(With({0, 1}));
  EXPECT_EQ(clocks.lowest(), Round{0});
}

TEST(Clocks, ANewcomerBeginsWhereTheSlowestOtherIs) {
  Clocks clocks;
  clocks.SetWorkers(With({0, 1, 2, 3}));
  EXPECT_EQ(clocks.StartFor(Of(2)), Round{0});
  clocks.Told(Of(0), Round{9}, false);
  clocks.Told(Of(1), Round{8}, false);
  clocks.Told(Of(2), Round{3}, false);
  EXPECT_EQ(clocks.StartFor(Of(2)), Round{8});
  EXPECT_EQ(clocks.StartFor(Of(3)), Round{3});
  clocks.Told(Of(2), Round{4}, true);
  EXPECT_EQ(clocks.StartFor(Of(3)), Round{8});
}

TEST(Clocks, WhoIsDoneIsNotWaitedForUntilItGoesOn) {
  Clocks clocks;
  clocks.SetWorkers(With({0, 1}));
  clocks.Told(Of(0), Round{9}, false);
  clocks.Told(Of(1), Round{3}, true);
  EXPECT_EQ(clocks.lowest(), Round{9});
  clocks.Told(Of(1), Round{2}, false);  // an old copy
  clocks.Told(Of(1), Round{3}, false);  // likewise
  EXPECT_EQ(clocks.lowest(), Round{9});
  clocks.Told(Of(1), Round{4}, false);
  EXPECT_EQ(clocks.lowest(), Round{4});
}

}  // namespace
}  // namespace cairn::server

#include "client/protocol/clocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn::client {
namespace {

constexpr TableId kTable{3};

TEST(WorkerClocks, AStepIsToldWhenAllItsPushesAreAnswered) {
  Clocks clocks;
  clocks.OnPush(kTable, 10);
  clocks.OnPush(kTable, 11);
  clocks.EndStep(kTable, 12, false);
  EXPECT_EQ(clocks.Of(kTable), Round{1});
  EXPECT_FALSE(clocks.TakeDue());
  clocks.OnPushEnded(kTable, 11);
  EXPECT_FALSE(clocks.TakeDue());
  clocks.OnPushEnded(kTable, 10);
  EXPECT_EQ(clocks.TakeDue()->clock, Round{1});
  EXPECT_FALSE(clocks.TakeDue());
}

TEST(WorkerClocks, LaterPushesDoNotHoldBackAnEarlierStep) {
  Clocks clocks;
  clocks.OnPush(kTable, 10);
  clocks.EndStep(kTable, 11, false);
  clocks.OnPush(kTable, 11);
  clocks.EndStep(kTable, 12, false);
  clocks.OnPushEnded(kTable, 10);
  EXPECT_EQ(clocks.TakeDue()->clock, Round{1});
  clocks.OnPushEnded(kTable, 11);
  EXPECT_EQ(clocks.TakeDue()->clock, Round{2});
}

TEST(WorkerClocks, OnlyTheNewestOfSeveralIsTold) {
  Clocks clocks;
  clocks.OnPush(kTable, 10);
  for (int step = 0; step < 3; ++step) clocks.EndStep(kTable, 11, step == 2);
  clocks.OnPushEnded(kTable, 10);
  const auto due = clocks.TakeDue();
  ASSERT_TRUE(due);
  EXPECT_EQ(due->clock, Round{3});
  EXPECT_TRUE(due->last);
  EXPECT_FALSE(clocks.TakeDue());
  ASSERT_EQ(clocks.told().size(), 1u);
  EXPECT_EQ(clocks.told()[0].clock, Round{3});
}

TEST(WorkerClocks, WhoJoinsLaterCountsOnFromTheOthers) {
  Clocks clocks;
  EXPECT_FALSE(clocks.TakeQuestion(kTable, false));
  EXPECT_TRUE(clocks.TakeQuestion(kTable, true));
  EXPECT_FALSE(clocks.TakeQuestion(kTable, true));
  clocks.EndStep(kTable, 5, false);
  EXPECT_EQ(clocks.TakeDue()->clock, Round{1});
  EXPECT_TRUE(clocks.BeginAt(kTable, Round{40}));
  EXPECT_EQ(clocks.TakeDue()->clock, Round{40});
  EXPECT_FALSE(clocks.BeginAt(kTable, Round{39}));  // another thread's, a little behind
  EXPECT_FALSE(clocks.TakeDue());
  clocks.EndStep(kTable, 9, false);
  EXPECT_EQ(clocks.TakeDue()->clock, Round{41});
}

TEST(WorkerClocks, WhoGoesOnAfterItsLastStepAsksWhereTheOthersAre) {
  Clocks clocks;
  clocks.EndStep(kTable, 5, true);
  EXPECT_TRUE(clocks.TakeDue()->last);
  EXPECT_FALSE(clocks.TakeQuestion(kTable, false));
  clocks.EndStep(kTable, 6, false);
  EXPECT_TRUE(clocks.TakeQuestion(kTable, false));
  EXPECT_FALSE(clocks.TakeDue()->last);
  EXPECT_TRUE(clocks.BeginAt(kTable, Round{30}));
  EXPECT_EQ(clocks.TakeDue()->clock, Round{30});
}

TEST(WorkerClocks, HowFarBehindOthersWereIsCounted) {
  Clocks clocks;
  EXPECT_TRUE(clocks.staleness().empty());
  clocks.OnRead(Round{5}, Round{5});
  clocks.OnRead(Round{5}, Round{7});  // all others are ahead
  clocks.OnRead(Round{5}, Round{3});
  EXPECT_EQ(clocks.staleness(), (std::vector<uint64_t>{2, 0, 1}));
  clocks.OnRead(Round{5000}, Round{3});
  EXPECT_EQ(clocks.staleness().size(), 33u);
  EXPECT_EQ(clocks.staleness().back(), 1u);
}

TEST(WorkerClocks, TablesDoNotWaitForEachOther) {
  Clocks clocks;
  clocks.OnPush(TableId{1}, 10);
  clocks.EndStep(TableId{1}, 11, false);
  clocks.EndStep(TableId{2}, 11, false);
  EXPECT_EQ(clocks.TakeDue()->table, TableId{2});
  EXPECT_FALSE(clocks.TakeDue());
}

}  // namespace
}  // namespace cairn::client

// Connections that end while the scheduler can't be told.
#include "scheduler/core/known_connections.h"

#include <gtest/gtest.h>

namespace cairn::scheduler {
namespace {

constexpr ConnId kOne(1), kTwo(2), kThree(3);

TEST(KnownConnections, OnlyThoseThatTheSchedulerHasHeardOfAreToldOf) {
  KnownConnections known;
  known.Deliver(kOne);
  EXPECT_TRUE(known.End(kOne, true));
  EXPECT_FALSE(known.End(kOne, true)) << "once";
  EXPECT_FALSE(known.End(kTwo, true)) << "it never spoke";
}

TEST(KnownConnections, ThoseThatEndWhileItIsAwayAreToldOfLater) {
  KnownConnections known;
  for (ConnId conn : {kOne, kTwo, kThree}) known.Deliver(conn);
  EXPECT_FALSE(known.End(kTwo, false));
  known.SendAway(kOne);
  EXPECT_FALSE(known.End(kOne, false)) << "it was sent away";
  known.SendAway(ConnId(4));  // it is new
  EXPECT_EQ(known.TakeEnded(), (std::vector<ConnId>{kTwo, kOne}));
  EXPECT_TRUE(known.TakeEnded().empty());
  EXPECT_TRUE(known.End(kThree, true));
}

TEST(KnownConnections, WhatIsLeftOfAReignIsClosedAndForgotten) {
  KnownConnections known;
  known.Deliver(kOne);
  known.Deliver(kTwo);
  known.SendAway(kOne);
  EXPECT_EQ(known.TakeAll(), std::set<ConnId>{kTwo});
  EXPECT_TRUE(known.TakeEnded().empty());
  EXPECT_FALSE(known.End(kTwo, true));
}

}  // namespace
}  // namespace cairn::scheduler

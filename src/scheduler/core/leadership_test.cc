// Who leads and answers.
#include "scheduler/core/leadership.h"

#include <gtest/gtest.h>

namespace cairn::scheduler {
namespace {

TEST(Leadership, AStandbyDoesNotAnswer) {
  Leadership leadership(60);
  EXPECT_FALSE(leadership.answers());
  leadership.OnWon();
  EXPECT_TRUE(leadership.answers());
}

TEST(Leadership, OneThatEtcdDoesNotHearSendsNodesAwayUntilItIsHeard) {
  Leadership leadership(60);
  leadership.OnWon();
  EXPECT_TRUE(leadership.OnEtcd(false));
  EXPECT_FALSE(leadership.OnEtcd(false)) << "nothing new";
  EXPECT_TRUE(leadership.leads() && leadership.away() && !leadership.answers());
  EXPECT_TRUE(leadership.OnEtcd(true));
  EXPECT_TRUE(leadership.answers());
}

// It was cut off from nodes and etcd alike: it resigned, and heard of etcd's silence after that. When it led
// again it answered nobody, and nobody else could lead.
TEST(Leadership, WhatIsSaidOfAReignThatIsOverDoesNotCountInTheNext) {
  Leadership leadership(60);
  leadership.OnWon();
  leadership.Resign(0);
  EXPECT_FALSE(leadership.OnEtcd(false));
  ASSERT_TRUE(leadership.OnFound());
  leadership.OnWon();
  EXPECT_TRUE(leadership.answers());

  leadership.OnEtcd(false);
  leadership.Resign(10);
  ASSERT_TRUE(leadership.OnFound());
  leadership.OnWon();
  EXPECT_TRUE(leadership.answers());
}

TEST(Leadership, OneThatResignedStandsAgainWhenItIsFoundOrAfterLong) {
  Leadership leadership(60);
  leadership.OnWon();
  EXPECT_FALSE(leadership.OnFound()) << "it leads";
  leadership.Resign(100);
  EXPECT_TRUE(leadership.resigned() && !leadership.leads());
  EXPECT_FALSE(leadership.OnTick(159));
  EXPECT_TRUE(leadership.OnTick(160));
  EXPECT_FALSE(leadership.OnTick(161)) << "it stands already";
  leadership.Resign(200);
  EXPECT_TRUE(leadership.OnFound());
  EXPECT_FALSE(leadership.OnTick(300));
}

}  // namespace
}  // namespace cairn::scheduler

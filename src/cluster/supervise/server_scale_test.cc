#include "cluster/supervise/server_scale.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

using Indices = std::vector<uint32_t>;

TEST(ServerScale, MoreAreStarted) {
  ServerScale scale({.servers = 2});
  EXPECT_TRUE(scale.Follow({2, {}}, 10, {0, 1}).start.empty());
  const ServerScale::Change change = scale.Follow({4, {}}, 20, {0, 1});
  EXPECT_TRUE(change.news);
  EXPECT_EQ(change.start, (Indices{2, 3}));
  EXPECT_FALSE(scale.Follow({4, {}}, 30, {0, 1, 2, 3}).news);
}

TEST(ServerScale, OneThatLeavesIsReplacedIfItIsWanted) {
  ServerScale scale({.servers = 2});
  const ServerScale::Change change = scale.Follow({2, {0}}, 10, {0, 1});
  EXPECT_FALSE(change.news);
  EXPECT_EQ(change.start, Indices{2}) << "0 still runs";
  EXPECT_EQ(scale.CountStaying({0, 1, 2}), 2u);
}

TEST(ServerScale, FewerLeaveByThemselves) {
  ServerScale scale({.servers = 3});
  const ServerScale::Change change = scale.Follow({1, {}}, 10, {0, 1, 2});
  EXPECT_TRUE(change.news);
  EXPECT_TRUE(change.too_many);
  EXPECT_TRUE(change.start.empty());
}

TEST(ServerScale, AnAnswerFromBeforeTheLastEndIsIgnored) {
  ServerScale scale({.servers = 2});
  EXPECT_FALSE(scale.OnEnd(1, std::nullopt, 100));
  EXPECT_TRUE(scale.Follow({2, {}}, 100, {0}).start.empty());
  EXPECT_EQ(scale.Follow({2, {}}, 101, {0}).start, Indices{1});
}

TEST(ServerScale, WhatTheSchedulerSaysAtTheEndCounts) {
  ServerScale scale({.servers = 2});
  EXPECT_TRUE(scale.OnEnd(1, ServersSeen{1, {1}}, 100));
  EXPECT_EQ(scale.wanted(), 1u);
  EXPECT_TRUE(scale.leaving().empty()) << "it is gone";
}

TEST(ServerScale, OneThatWasGivenUpKeepsItsPlace) {
  ServerScale scale({.servers = 2});
  scale.GiveUp(1);
  EXPECT_TRUE(scale.Follow({2, {}}, 10, {0}).start.empty());
  EXPECT_EQ(scale.Follow({3, {}}, 20, {0}).start, Indices{2});
}

TEST(ServerScale, FurtherOnesAreNodeZeros) {
  ServerScale first({.nodes = 2, .node_rank = 0, .servers = 1}),
      second({.nodes = 2, .node_rank = 1, .servers = 1});
  EXPECT_EQ(first.Follow({3, {}}, 10, {0}).start, Indices{2});
  EXPECT_TRUE(second.Follow({3, {}}, 10, {1}).start.empty());
}

}  // namespace
}  // namespace cairn::cluster

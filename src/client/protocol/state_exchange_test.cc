// States pass from node to node while the scheduler is silent (docs/internals/consistency.md, rule 55).
#include <gtest/gtest.h>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

std::vector<uint64_t> VersionsTold(const FakeCluster& c) {
  std::vector<uint64_t> versions;
  for (const auto& [conn, message] : c.told_shards)
    if (const auto* at = std::get_if<wire::StateAt>(&message)) versions.push_back(at->version.value);
  return versions;
}

TEST(PassedStates, NothingIsComparedWhileTheSchedulerIsHeard) {
  FakeCluster c;
  c.StartAll();
  c.Wait(10'000'000);
  EXPECT_TRUE(c.told_shards.empty());
}

TEST(PassedStates, EveryShardThreadIsAskedEveryHeartbeatWhileTheSchedulerIsSilent) {
  FakeCluster c;
  c.StartAll();
  c.scheduler_answers = false;
  c.Wait(1'900'000);
  EXPECT_TRUE(c.told_shards.empty()) << "two heartbeats";
  c.Wait(2'000'000);
  EXPECT_EQ(VersionsTold(c), std::vector<uint64_t>(2 * 4, c.state.version.value));
  c.scheduler_answers = true;
  c.Wait(2'000'000);
  c.told_shards.clear();
  c.Wait(5'000'000);
  EXPECT_TRUE(c.told_shards.empty());
}

TEST(PassedStates, ANewerOneIsTakenAlsoIfItEndsTheLinkItCameBy) {
  FakeCluster c;
  c.StartAll();
  c.scheduler_answers = false;
  const ConnId from = c.conn_of.at({0, 0});
  c.Kill(0);
  c.state.version = c.state.version.Next();
  c.Say(from, wire::StateMessage{c.state});
  c.Run();
  EXPECT_EQ(c.core->state()->version, c.state.version);
  EXPECT_FALSE(c.network.conns.at(from).open);
}

TEST(PassedStates, AnOlderOneOrOneOfAnotherClusterOrOlderTermIsIgnored) {
  FakeCluster c;
  c.StartAll();
  const StateVersion before = c.state.version;
  const auto passed = [&](auto change) {
    wire::ClusterState state = c.state;
    state.version = StateVersion{before.value + 5};
    change(state);
    c.Say(c.conn_of.at({0, 0}), wire::StateMessage{state});
    return c.core->state()->version == state.version;
  };
  EXPECT_FALSE(passed([&](auto& state) { state.version = StateVersion{before.value - 1}; }));
  EXPECT_FALSE(passed([](auto& state) { state.cluster_id = "another"; }));
  EXPECT_FALSE(passed([](auto& state) { state.term = Term{0}; }));
  EXPECT_EQ(c.core->state()->version, before);
  EXPECT_TRUE(passed([](auto&) {}));
}

TEST(PassedStates, AShardThatIsBehindGetsOursAndOneThatIsAheadIsAskedForItsOwn) {
  FakeCluster c;
  c.StartAll();
  const ConnId shard = c.conn_of.at({1, 1});
  c.Say(shard, wire::StateAt{StateVersion{c.state.version.value - 1}});
  c.Run();
  ASSERT_EQ(c.told_shards.size(), 1u);
  EXPECT_EQ(c.told_shards[0].first, shard);
  EXPECT_EQ(std::get<wire::StateMessage>(c.told_shards[0].second).state, c.state);
  c.Say(shard, wire::StateAt{c.state.version});
  c.Run();
  EXPECT_EQ(c.told_shards.size(), 1u) << "nothing to say";
  c.Say(shard, wire::StateAt{c.state.version.Next()});
  c.Run();
  EXPECT_EQ(VersionsTold(c), std::vector<uint64_t>{c.state.version.value});
}

}  // namespace
}  // namespace cairn::client

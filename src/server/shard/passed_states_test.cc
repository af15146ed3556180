// What a shard does with states that workers pass on (docs/internals/consistency.md, rule 55).
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

class PassedStates : public ::testing::Test {
 protected:
  template <class M>
  std::vector<M> Sent(uint32_t rank) {
    std::vector<M> found;
    for (const wire::InFrame& frame : h.net.sent[h.conns[rank]]) {
      if (frame.header.type != wire::FrameType::kControl) continue;
      auto message = wire::DecodeControl(frame.header, frame.body());
      if (auto* m = std::get_if<M>(&*message)) found.push_back(*m);
    }
    return found;
  }
  wire::ClusterState Newer(uint64_t by = 1) {
    wire::ClusterState state = h.state;
    state.version = StateVersion{state.version.value + by};
    return state;
  }
  ShardHarness h;
};

TEST_F(PassedStates, WhoIsBehindGetsTheStateAndWhoIsAheadIsAskedForIts) {
  h.Control(h.conns[0], wire::StateAt{StateVersion{h.state.version.value - 1}});
  ASSERT_EQ(Sent<wire::StateMessage>(0).size(), 1u);
  EXPECT_EQ(Sent<wire::StateMessage>(0)[0].state, h.state);
  h.Control(h.conns[1], wire::StateAt{h.state.version});
  EXPECT_TRUE(Sent<wire::StateMessage>(1).empty());
  EXPECT_TRUE(Sent<wire::StateAt>(1).empty());
  h.Control(h.conns[1], wire::StateAt{h.state.version.Next()});
  ASSERT_EQ(Sent<wire::StateAt>(1).size(), 1u);
  EXPECT_EQ(Sent<wire::StateAt>(1)[0].version, h.state.version);
}

TEST_F(PassedStates, TheNewestIsReportedAtOnceAndKeptUntilItIsGivenBack) {
  h.shard->TakeNewsFlag();
  EXPECT_EQ(h.shard->passed_state(), nullptr);
  h.Control(h.conns[0], wire::StateMessage{Newer(2)});
  EXPECT_TRUE(h.shard->TakeNewsFlag());
  h.Control(h.conns[1], wire::StateMessage{Newer(1)});
  EXPECT_FALSE(h.shard->TakeNewsFlag()) << "an older one";
  ASSERT_NE(h.shard->passed_state(), nullptr);
  EXPECT_EQ(*h.shard->passed_state(), Newer(2));
  EXPECT_EQ(h.shard->version(), h.state.version) << "it is for all of the server";
  h.shard->OnState(h.shard->passed_state(), h.now);
  EXPECT_EQ(h.shard->version().value, h.state.version.value + 2);
  EXPECT_EQ(h.shard->passed_state(), nullptr);
}

TEST_F(PassedStates, OldOnesAndThoseOfAnotherMapAreNotTaken) {
  h.Control(h.conns[0], wire::StateMessage{h.state});
  wire::ClusterState state = Newer();
  state.slots.pop_back();
  h.Control(h.conns[0], wire::StateMessage{state});
  EXPECT_EQ(h.shard->passed_state(), nullptr);
}

// It had seen the job begin to form; what was told next is that it runs.
TEST(PassedWhileForming, TheFirstStateWithSlotsIsTaken) {
  ShardHarness h(1);
  const wire::ClusterState running = h.state;
  ShardHarness late(0, {}, 1);
  late.state = running;
  late.state.slots.clear();
  late.state.phase = wire::Phase::kForming;
  late.incarnations = h.incarnations;
  late.Publish();
  late.Connect(0);
  wire::ClusterState newer = running;
  newer.version = late.state.version.Next();
  late.Control(late.conns[0], wire::StateMessage{newer});
  ASSERT_NE(late.shard->passed_state(), nullptr);
  EXPECT_EQ(*late.shard->passed_state(), newer);
}

TEST_F(PassedStates, WhoHasNotSaidHelloIsRefused) {
  const ConnId stranger{++h.next_conn};
  h.Control(stranger, wire::StateMessage{Newer()});
  EXPECT_EQ(h.shard->passed_state(), nullptr);
  EXPECT_EQ(h.net.closed, std::vector<ConnId>{stranger});
}

}  // namespace
}  // namespace cairn::server

// The server's control side: registering, heartbeats, states, holds, and how it ends.
#include "server/control/server_control.h"

#include <set>

#include "server/control/server_control_harness.h"

namespace cairn::server {
namespace {

TEST_F(Control, RegistrationIsRepeatedUntilItIsAnsweredThenHeartbeatsFollow) {
  control->OnConnected(conn(), now);
  Tick(1'000'000);
  Tick(500'000);
  ASSERT_EQ(Sent<wire::Register>().size(), 2u);
  EXPECT_EQ(Sent<wire::Register>()[0].uid, 77u);
  EXPECT_EQ(Sent<wire::Register>()[0].threads, 2u);
  Tell(wire::Registered{1234, "test", Term{1}, Incarnation{4}, 0, 0});
  EXPECT_TRUE(registered.empty()) << "another's";
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0});
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_EQ(registered[0], std::make_pair(3u, Incarnation{5}));
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0});
  EXPECT_EQ(registered.size(), 1u);
  Tick(1'000'000);
  Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}});
  Tick(1'000'000);
  ASSERT_EQ(Sent<wire::Heartbeat>().size(), 3u);
  EXPECT_EQ(Sent<wire::Heartbeat>()[2].incarnation, Incarnation{5});
}

TEST_F(Control, ALostConnectionIsMadeAnewWithBackOff) {
  Register();
  control->OnDisconnect(conn(), now);
  EXPECT_EQ(net.connects, 1u);
  Tick(50'000);
  EXPECT_EQ(net.connects, 2u);
  control->OnDisconnect(conn(), now);
  Tick(19'000);
  EXPECT_EQ(net.connects, 2u) << "after a pause";
  Tick(51'000);
  EXPECT_EQ(net.connects, 3u);
  control->OnConnected(conn(), now);
  ASSERT_EQ(Sent<wire::Heartbeat>().size(), 2u) << "it says who it is, then all the rest";
  EXPECT_TRUE(Sent<wire::Register>().empty());
  EXPECT_EQ(lines.back(), "lost the scheduler at sched:7000, reconnecting");
}

TEST_F(Control, AStateThatAWorkerPassedOnGoesToEveryShardAndIsNoWordOfTheScheduler) {
  options.orphan_after_us = 5'000'000;
  Start();
  Register();
  Tell(wire::StateMessage{State(7)});
  const auto pass = [&](uint64_t version, Term term, std::string cluster = "test") {
    wire::ClusterState state = State(version);
    state.term = term;
    state.cluster_id = std::move(cluster);
    ShardReport report{.version = StateVersion{7}};
    report.passed_state = std::make_shared<const wire::ClusterState>(std::move(state));
    control->OnReports({{.version = StateVersion{7}}, report}, now);
  };
  Tick(4'000'000);
  pass(8, Term{0});
  pass(8, Term{2}, "another");
  EXPECT_EQ(states, std::vector{StateVersion{7}});
  pass(9, Term{2});
  pass(8, Term{2});
  EXPECT_EQ(states, (std::vector{StateVersion{7}, StateVersion{9}}));
  EXPECT_EQ(lines.back(), "took state 9 from a worker: the scheduler is silent");
  Tell(wire::StateMessage{State(10)});
  EXPECT_EQ(states.size(), 2u) << "of an older term";
  Tick(1'000'000);
  EXPECT_TRUE(control->finished()) << "the scheduler has been silent for 5 s all the same";
}

TEST_F(Control, BesideASilentConnectionOthersAreTriedEveryHeartbeat) {
  Register();
  for (int i = 0; i < 5; ++i) Tick(1'000'000);
  EXPECT_EQ(net.connects, 5u) << "from the second heartbeat without an answer on";
  EXPECT_TRUE(net.closed.empty()) << "each of them may get through, the first one too";
  control->OnConnected(ConnId{1003}, now);
  EXPECT_EQ(net.closed.size(), 4u);
  EXPECT_EQ(Sent<wire::Heartbeat>(ConnId{1003}).size(), 2u);
  Tick(1'000'000);
  EXPECT_EQ(net.connects, 5u);
}

TEST_F(Control, AConnectionThatWasOnlySlowIsKept) {
  Register();
  for (int i = 0; i < 3; ++i) Tick(1'000'000);
  ASSERT_EQ(net.connects, 3u);
  Buffer bytes =
      wire::Flatten(*wire::EncodeControl(wire::HeartbeatReply{Term{1}, StateVersion{1}}, pool), pool);
  Result<wire::InFrame> frame = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool);
  control->OnMessage(ConnId{1001}, *frame, now);
  EXPECT_EQ(net.closed, (std::vector<ConnId>{ConnId{1002}, ConnId{1003}}));
  Tick(1'000'000);
  EXPECT_EQ(net.connects, 3u);
}

TEST_F(Control, TheSchedulerSaysHowOftenItWantsToHearOfAServer) {
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0, /*heartbeat_ms=*/200});
  const size_t before = Sent<wire::Heartbeat>().size();
  for (int i = 0; i < 10; ++i) {
    Tick(100'000);
    Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}, 0, "", 0, 200});
  }
  EXPECT_EQ(Sent<wire::Heartbeat>().size(), before + 5);
}

// The first frame on a connection may have 64 KiB, and no frame to the scheduler more than 1 MiB.
TEST_F(Control, HeartbeatsAreBoundedAndTakeTurns) {
  Register();
  constexpr uint32_t kSlots = 65536, kTables = 4096;
  ShardReport report;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    report.loads.push_back({slot, 1, 1, 1, 1});
    report.news.push_back({slot, wire::SlotNews::kSlow, 1, 1, StateVersion{1}});
  }
  report.hold_view = ViewNumber{2};
  for (uint32_t table = 0; table < kTables; ++table) report.hold_rounds.push_back({TableId{table}, Round{1}});
  control->OnReports({report}, now);
  control->OnDisconnect(conn(), now);
  Tick(200'000);
  control->OnConnected(conn(), now);
  const ConnId on = conn();
  ASSERT_GE(net.sent[on].size(), 2u);
  EXPECT_LE(net.sent[on][0].header.body_bytes, 1024u);
  std::set<uint32_t> told;
  for (int i = 0; i < 16; ++i) {
    for (const wire::InFrame& frame : net.sent[on]) EXPECT_LT(frame.header.body_bytes, 512u << 10);
    for (const wire::Heartbeat& heartbeat : Sent<wire::Heartbeat>(on))
      for (const wire::SlotLoad& load : heartbeat.loads) told.insert(load.slot);
    net.sent[on].clear();
    Tick(1'000'000);
    Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}});
  }
  EXPECT_EQ(told.size(), kSlots) << "each slot in its turn";
}

TEST_F(Control, StatesGoToTheShardsOnceAndNeverBack) {
  Register();
  Tell(wire::StateMessage{State(4)});
  Tell(wire::StateMessage{State(4)});
  Tell(wire::StateMessage{State(3)});
  wire::ClusterState newer = State(6);
  newer.term = Term{2};
  Tell(wire::StateMessage{newer});
  Tell(wire::StateMessage{State(7)});  // of term 1: a scheduler that has been replaced
  wire::ClusterState elsewhere = State(9);
  elsewhere.cluster_id = "other";
  elsewhere.term = Term{9};
  Tell(wire::StateMessage{elsewhere});
  EXPECT_EQ(states, (std::vector<StateVersion>{StateVersion{4}, StateVersion{6}}));
}

TEST_F(Control, AHeartbeatSaysWhatEveryShardHasAndGoesOutWhenThatChanges) {
  Register();
  Report(4, 3);
  ASSERT_EQ(Sent<wire::Heartbeat>().size(), 2u);
  EXPECT_EQ(Sent<wire::Heartbeat>().back().version, StateVersion{3});
  Report(5, 3);
  EXPECT_EQ(Sent<wire::Heartbeat>().size(), 2u) << "nothing new for the scheduler";
  Report(5, 5);
  EXPECT_EQ(Sent<wire::Heartbeat>().back().version, StateVersion{5});
}

TEST_F(Control, HoldsCountWhenEveryShardHoldsAndTheHighestRoundIsReported) {
  Register();
  const TableId a{1}, b{2};
  ShardReport one{StateVersion{5}, ViewNumber{2}, {{a, Round{7}}, {b, Round{1}}}, {}};
  ShardReport two{StateVersion{5}, ViewNumber{0}, {}, {}};
  one.stats.pushes = 3;
  two.stats.pushes = 4;
  one.stats.round_trips = 6;
  two.stats.round_trips = 5;
  control->OnReports({one, two}, now);
  EXPECT_EQ(Sent<wire::Heartbeat>().back().hold_view, ViewNumber{0});
  EXPECT_TRUE(Sent<wire::Heartbeat>().back().open_rounds.empty());
  two.hold_view = ViewNumber{2};
  two.hold_rounds = {{a, Round{8}}};
  control->OnReports({one, two}, now);
  const wire::Heartbeat said = Sent<wire::Heartbeat>().back();
  EXPECT_EQ(said.hold_view, ViewNumber{2});
  EXPECT_EQ(said.open_rounds, (std::vector<wire::TableRound>{{a, Round{8}}, {b, Round{1}}}));
  EXPECT_EQ(said.stats.pushes, 7u);
  EXPECT_EQ(said.stats.round_trips, 6u) << "a trip touches several threads: the most that one has seen";
}

TEST_F(Control, ItStaysWhileSomeRanksAreDoneAndOthersAreNot) {
  Register();
  wire::ClusterState state = State(9);
  state.done_ranks = {0};
  Tell(wire::StateMessage{state});
  Report(9, 9);
  EXPECT_EQ(states.size(), 1u);
  EXPECT_FALSE(control->finished());
  EXPECT_FALSE(Sent<wire::Heartbeat>().back().end_confirmed);
}

TEST_F(Control, AtTheEndItLeavesOnceEveryShardKnowsAndTheSchedulerHangsUp) {
  Register();
  Tell(wire::StateMessage{State(9, wire::Phase::kEnded)});
  Report(9, 8);
  EXPECT_FALSE(Sent<wire::Heartbeat>().back().end_confirmed);
  Report(9, 9);
  EXPECT_TRUE(Sent<wire::Heartbeat>().back().end_confirmed);
  EXPECT_FALSE(control->finished());
  Tick(1'000'000);
  EXPECT_TRUE(Sent<wire::Heartbeat>().back().end_confirmed);
  control->OnDisconnect(conn(), now);
  EXPECT_TRUE(control->finished());
  EXPECT_TRUE(control->result().ok());
}

TEST_F(Control, ASchedulerThatStaysDoesNotHoldTheServerUp) {
  Register();
  wire::ClusterState failed = State(9, wire::Phase::kFailed);
  failed.failure = "server 1 was lost";
  Tell(wire::StateMessage{failed});
  Report(9, 9);
  Tick(2'000'000);
  EXPECT_FALSE(control->finished());
  Tick(1'000'000);
  EXPECT_TRUE(control->finished());
  EXPECT_EQ(control->result(), Status(Code::kJobFailed, "server 1 was lost"));
}

TEST_F(Control, RefusalsEndItButForTheWishToRegisterAgain) {
  Register();
  Tell(wire::Refusal{0, Code::kUnavailable, "register again"});
  EXPECT_FALSE(control->finished());
  Tick(1'000'000);
  ASSERT_EQ(Sent<wire::Register>().size(), 2u);
  EXPECT_EQ(Sent<wire::Register>().back().cluster_id, "test");
  EXPECT_EQ(Sent<wire::Register>().back().wanted_rank, 3);
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0});
  Tick(1'000'000);
  EXPECT_EQ(Sent<wire::Register>().size(), 2u);
  Tell(wire::Refusal{0, Code::kRetired, "server 3 was declared lost"});
  EXPECT_TRUE(control->finished());
  EXPECT_EQ(control->result(), Status(Code::kRetired, "server 3 was declared lost"));
}

TEST_F(Control, ASchedulerThatForgotThisServerEndsIt) {
  Register();
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{6}, 3, 0});
  EXPECT_TRUE(control->finished());
  EXPECT_EQ(control->result().code(), Code::kProtocol);
}

TEST_F(Control, WithoutASchedulerItGivesUp) {
  options.register_deadline_us = 10'000'000;
  now = 0;
  Start();
  Tick(9'999'999);
  EXPECT_FALSE(control->finished());
  Tick(1);
  EXPECT_EQ(control->result(),
            Status(Code::kDeadlineExceeded, "the scheduler at sched:7000 did not answer within 10 s"));
}

TEST_F(Control, AnOrphanLeavesAfterALongSilence) {
  options.orphan_after_us = 60'000'000;
  Start();
  Register();
  Tick(30'000'000);
  Tick(100'000);
  control->OnConnected(conn(), now);
  Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}, 0, ""});
  Tick(59'000'000);
  EXPECT_FALSE(control->finished());
  Tick(1'000'000);
  EXPECT_TRUE(control->finished());
  EXPECT_EQ(control->result().code(), Code::kUnavailable);
}

// Schedulers at 7000 (this one), 7001 and 7002.
class SeveralSchedulers : public Control {
 protected:
  SeveralSchedulers() {
    options.standbys = {{"sched", 7001}, {"sched", 7002}};
    net.connecting.clear();
    Start();
  }
  uint16_t port() const { return net.connecting.back().second.port; }
  // As a standby does.
  void Refuse() {
    control->OnConnected(conn(), now);
    Tell(wire::Refusal{0, Code::kUnavailable, "this scheduler is a standby"});
  }
};

TEST_F(SeveralSchedulers, AStandbySendsItToTheNextOne) {
  Refuse();
  Tick(100'000);
  EXPECT_EQ(port(), 7001);
  Refuse();
  Tick(100'000);
  EXPECT_EQ(port(), 7002);
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0});
  EXPECT_EQ(registered.size(), 1u);
  EXPECT_EQ(Sent<wire::Heartbeat>().size(), 1u);
  EXPECT_TRUE(lines.size() == 1) << "a standby is nothing to talk about: " << lines.back();
}

TEST_F(SeveralSchedulers, TheBackOffIsBetweenRoundsOfTheList) {
  for (int round = 0; round < 6; ++round) {  // by now it has grown
    for (int i = 0; i < 3; ++i) {
      control->OnDisconnect(conn(), now);
      Tick(2'000'000);
    }
  }
  EXPECT_EQ(port(), 7000);
  const uint64_t before = net.connects;
  control->OnDisconnect(conn(), now);
  Tick(100'000);
  control->OnDisconnect(conn(), now);
  Tick(100'000);
  EXPECT_EQ(net.connects, before + 2) << "the next ones are tried at once";
  control->OnDisconnect(conn(), now);
  Tick(100'000);
  EXPECT_EQ(net.connects, before + 2) << "and then it waits";
}

TEST_F(SeveralSchedulers, ALeaderOfAnOlderTermIsLeft) {
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{2}, Incarnation{5}, 3, 0});
  Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}, 0, ""});
  EXPECT_EQ(net.closed.size(), 1u);
  Tick(100'000);
  EXPECT_EQ(port(), 7001);
}

// It led while the job formed, slept, and wakes up when others have led and server 3 has been scaled up to.
TEST_F(SeveralSchedulers, ALeaderOfAnOlderTermThatDoesNotKnowThisServerIsLeft) {
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{3}, Incarnation{5}, 3, 0});
  control->OnDisconnect(conn(), now);
  Tick(100'000);
  EXPECT_EQ(port(), 7001);
  Refuse();
  Tick(100'000);
  EXPECT_EQ(port(), 7002);
  control->OnConnected(conn(), now);
  ASSERT_EQ(Sent<wire::Register>().size(), 1u);
  Tell(wire::Refusal{0, Code::kInvalidArgument, "server 3 is outside 0..2"});
  EXPECT_FALSE(control->finished()) << control->result().message();
  EXPECT_EQ(net.closed.back(), conn());
  Tick(2'000'000);
  EXPECT_EQ(port(), 7000);
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{4}, Incarnation{5}, 3, 0});
  EXPECT_EQ(Sent<wire::Register>().size(), 1u);
  Tick(1'000'000);
  EXPECT_FALSE(Sent<wire::Heartbeat>().empty()) << "it is known, and goes on";
  EXPECT_FALSE(control->finished());
}

TEST_F(SeveralSchedulers, ALeaderOfAnOlderTermThatKnowsThisServerIsLeft) {
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{3}, Incarnation{5}, 3, 0});
  Tell(wire::Refusal{0, Code::kUnavailable, "this scheduler is a standby"});
  Tick(100'000);
  EXPECT_EQ(port(), 7001);
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{2}, Incarnation{5}, 3, 0});
  EXPECT_EQ(net.closed.back(), conn());
  Tick(100'000);
  EXPECT_EQ(port(), 7002);
}

TEST_F(SeveralSchedulers, AServerThatWasNeverRegisteredIsToldWhatIsWrongWithIt) {
  control->OnConnected(conn(), now);
  Tell(wire::Refusal{0, Code::kInvalidArgument, "server 3 is outside 0..2"});
  EXPECT_EQ(control->result(), Status(Code::kInvalidArgument, "server 3 is outside 0..2"));
}

TEST_F(SeveralSchedulers, WhoDidNotAnswerIsNamed) {
  options.register_deadline_us = 10'000'000;
  now = 0;
  Start();
  Tick(10'000'000);
  EXPECT_EQ(control->result(),
            Status(Code::kDeadlineExceeded,
                   "the schedulers at sched:7000, sched:7001, sched:7002 did not answer within 10 s"));
}

TEST_F(Control, BytesThatAreNoMessageResetTheConnection) {
  Register();
  wire::InFrame junk;
  junk.header.type = wire::FrameType::kControl;
  junk.header.body_bytes = 16;
  junk.storage = pool.Get(16);
  std::memset(junk.storage.data(), 0xFF, 16);
  control->OnMessage(conn(), junk, now);
  EXPECT_EQ(net.closed, std::vector<ConnId>{ConnId{1001}});
  EXPECT_FALSE(control->finished());
}

}  // namespace
}  // namespace cairn::server

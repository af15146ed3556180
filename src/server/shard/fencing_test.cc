// Who is let in: handshakes, retired incarnations, states that are behind, broken frames.
#include <limits>

#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

wire::Hello HelloOf(Incarnation worker) {
  wire::Hello hello;
  hello.cluster_id = "test";
  hello.incarnation = worker;
  hello.server_incarnation = ShardHarness::kServer;
  return hello;
}

class Fencing : public ::testing::Test {
 protected:
  Fencing() {
    table = h.AddTable(ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kSum));
    h.SkipAnswers();
  }
  std::string Greet(const wire::Hello& hello) {
    const ConnId conn{++h.next_conn};
    h.Control(conn, hello);
    return ShardHarness::Describe(h.NextOn(conn));
  }
  ShardHarness h;
  TableId table;
};

TEST_F(Fencing, HelloIsAnsweredByWhatItSays) {
  wire::Hello hello = HelloOf(h.incarnations[0]);
  EXPECT_EQ(Greet(hello), "HelloReply");
  hello.incarnation = h.state.next_incarnation;
  EXPECT_TRUE(Greet(hello).starts_with("refusal unavailable"));
  hello.incarnation = Incarnation{2};
  EXPECT_TRUE(Greet(hello).starts_with("refusal retired"));
  EXPECT_TRUE(h.net.closed.empty());

  wire::Hello other = HelloOf(h.incarnations[0]);
  other.cluster_id = "elsewhere";
  EXPECT_EQ(Greet(other),
            "refusal protocol: server 0 thread 0: belongs to cluster test, the worker to elsewhere");
  other = HelloOf(h.incarnations[0]);
  other.server_incarnation = Incarnation{9};
  EXPECT_TRUE(Greet(other).starts_with("refusal protocol"));
  other = HelloOf(h.incarnations[0]);
  other.protocol_min = other.protocol_max = wire::kProtocolVersion + 1;
  EXPECT_TRUE(Greet(other).starts_with("refusal protocol"));
  EXPECT_EQ(h.net.closed.size(), 3u);
}

TEST_F(Fencing, BeforeRegistrationAWorkerTriesAgain) {
  auto shard = Shard::Make({}, h.net, h.pool);
  wire::FramePtr hello = wire::EncodeControl(HelloOf(h.incarnations[0]), h.pool);
  Buffer bytes = wire::Flatten(*hello, h.pool);
  Result<wire::InFrame> frame = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, h.pool);
  shard->OnMessage(ConnId{99}, *frame, 0);
  EXPECT_TRUE(ShardHarness::Describe(h.NextOn(ConnId{99})).starts_with("refusal unavailable"));
  // A state that comes before the registration takes effect with it.
  shard->OnState(std::make_shared<wire::ClusterState>(h.state), 0);
  shard->OnRegistered(0, ShardHarness::kServer);
  EXPECT_EQ(shard->version(), h.state.version);
  shard->OnMessage(ConnId{99}, *frame, 0);
  EXPECT_EQ(ShardHarness::Describe(h.NextOn(ConnId{99})), "HelloReply");
}

TEST_F(Fencing, FramesBeforeHelloAreRefusedAndTheConnectionClosed) {
  const ConnId conn{77};
  h.Deliver(conn, *h.Push(0, table, {{1, 1, 1}}));
  EXPECT_TRUE(ShardHarness::Describe(h.NextOn(conn)).starts_with("refusal protocol"));
  EXPECT_EQ(h.net.closed, std::vector<ConnId>{conn});
}

TEST_F(Fencing, ADeadWorkersFramesChangeNothing) {
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  h.Deliver(1, h.Push(1, table, {{1, 10, 1}}));
  wire::FramePtr late = h.Push(0, table, {{1, 1, 1}}), next = h.Push(0, table, {{1, 1, 2}});
  wire::FramePtr pull = h.Pull(0, table, {1});
  h.SkipAnswers();
  h.Kill(0);
  EXPECT_EQ(h.seen.retired, std::vector<Incarnation>{h.incarnations[0]});
  for (const auto& frame : {late, next, pull}) {
    h.Deliver(0, frame);
    EXPECT_TRUE(h.Answer(0).starts_with("error retired: incarnation 10"));
  }
  EXPECT_EQ(h.Stored(table, 1), 11.0f);
  EXPECT_EQ(h.seen.pushes.back().outcome, Outcome::kRetired);
  // Its small index may be used again, and starts from nothing.
  h.AddWorker(0, ViewNumber{1});
  h.Publish();
  h.Connect(0);
  h.SkipAnswers();
  h.Deliver(0, h.Push(0, table, {{1, 100, 1}}));
  EXPECT_EQ(h.Answer(0), "applied");
  EXPECT_EQ(h.Stored(table, 1), 111.0f);
}

TEST_F(Fencing, AFrameOfANewerStateWaits) {
  h.state.version = h.state.version.Next();
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_TRUE(h.Answer(0).starts_with("error unavailable: server 0 thread 0 has state 2"));
  h.Publish();
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_EQ(h.Answer(0), "applied");
}

TEST_F(Fencing, AFrameOlderThanTheSlotsEpochIsUnavailable) {
  wire::FramePtr old = h.Push(0, table, {{1, 1, 1}});
  h.state.slots[1].since = h.state.version.Next();
  h.state.slots[1].epoch = 2;
  h.Publish();
  h.Deliver(0, old);
  EXPECT_TRUE(h.Answer(0).starts_with("error unavailable: slot 1 moved in state 3"));
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_EQ(h.Answer(0), "applied");
  EXPECT_EQ(h.seen.pushes.back().position.epoch(), 2u);
}

TEST_F(Fencing, OlderStatesAreIgnored) {
  wire::ClusterState old = h.state;
  h.Kill(1);
  h.shard->OnState(std::make_shared<wire::ClusterState>(old), 0);
  EXPECT_EQ(h.shard->version(), h.state.version);
}

TEST_F(Fencing, AnIncarnationSpeaksOnItsOwnConnectionOnly) {
  h.Deliver(h.conns[0], *h.Push(1, table, {{1, 1, 1}}));
  EXPECT_TRUE(h.Answer(0).starts_with("error protocol"));
  EXPECT_EQ(h.Stored(table, 1), std::nullopt);
  EXPECT_EQ(h.net.closed, std::vector<ConnId>{h.conns[0]});
}

TEST_F(Fencing, ABrokenFrameIsAnsweredAndItsConnectionClosed) {
  for (wire::FrameType type : {wire::FrameType::kPush, wire::FrameType::kContribute, wire::FrameType::kPull,
                               wire::FrameType::kPullReply, wire::FrameType::kControl}) {
    h.Connect(0);
    h.SkipAnswers();
    wire::InFrame frame;
    frame.header.type = type;
    frame.header.incarnation = h.incarnations[0].value;
    frame.header.request_id = 5;
    frame.header.entry_count = 1000;
    frame.header.body_bytes = 8;
    frame.storage = h.pool.Get(8);
    h.shard->OnMessage(h.conns[0], frame, 0);
    EXPECT_NE(h.Answer(0).find("protocol"), std::string::npos);
    EXPECT_EQ(h.net.closed.back(), h.conns[0]);
  }
}

TEST_F(Fencing, AfterTheEndEverythingIsAnsweredWithIt) {
  const TableId sync = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.Deliver(0, h.Pull(0, sync, {1}, 1));
  h.SkipAnswers();
  h.state.phase = wire::Phase::kFailed;
  h.state.failure = "server 1 at host:2 was lost";
  h.Publish();
  EXPECT_EQ(h.Answer(0), "error job_failed: server 1 at host:2 was lost");
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_EQ(h.Answer(0), "error job_failed: server 1 at host:2 was lost");
}

TEST_F(Fencing, AConnectionThatBrokeTheRulesIsForgotten) {
  EXPECT_EQ(h.shard->stats().connections, 2u);
  h.Deliver(0, h.Push(0, table, {{1, 1, 0}}));  // number 0
  EXPECT_EQ(h.shard->stats().connections, 1u);
  h.SkipAnswers();
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_TRUE(h.Answer(0).starts_with("refusal protocol")) << "what was on its way is not taken";
  EXPECT_EQ(h.Stored(table, 1), std::nullopt);
  wire::Hello other = HelloOf(h.incarnations[1]);
  other.cluster_id = "elsewhere";
  h.Control(h.conns[1], other);
  EXPECT_EQ(h.shard->stats().connections, 0u) << "a second Hello ends it too, if it is wrong";
}

TEST_F(Fencing, AHelloIsForOneThreadAndNeedNotNameTheCluster) {
  wire::Hello hello = HelloOf(h.incarnations[0]);
  hello.thread = 1;
  EXPECT_TRUE(
      Greet(hello).starts_with("refusal protocol: server 0 thread 0: is thread 0 of incarnation 1, the "
                               "worker asks for thread 1 of incarnation 1"));
  hello = HelloOf(h.incarnations[0]);
  hello.cluster_id = "";
  EXPECT_EQ(Greet(hello), "HelloReply");
}

TEST_F(Fencing, ARefusalSaysWhichStateTheShardHas) {
  h.Deliver(0, h.Pull(0, table, {4}));
  EXPECT_EQ(h.Next(0)->header.state_version, h.state.version.value);
}

TEST_F(Fencing, TablesThatNeverWereAreNotDroppedOnes) {
  for (const TableId never : {TableId{0}, h.state.next_table}) {
    h.Deliver(0, h.Pull(0, never, {1}));
    EXPECT_EQ(h.Answer(0), "error invalid_argument: there never was a table " + std::to_string(never.value));
  }
}

TEST_F(Fencing, NothingIsSentToAConnectionThatIsGone) {
  const TableId sync = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(0, h.Give(0, sync, 0, 1, 1));
  h.shard->OnDisconnect(h.conns[0], h.now);
  h.shard->OnTick(h.now += 3'000'000);
  h.Deliver(1, h.Done(1, sync, 0));
  EXPECT_EQ(h.Open(sync, 1), 1u);
  EXPECT_EQ(h.Answer(0), "");
}

TEST_F(Fencing, AnIndexThatIsUsedAgainHasNoRefusals) {
  h.Deliver(0, h.Push(0, table, {{1, std::numeric_limits<float>::quiet_NaN(), 1}}));
  h.Kill(0);
  h.AddWorker(0, ViewNumber{1});
  h.Publish();
  h.Connect(0);
  h.SkipAnswers();
  const auto push = h.Push(0, table, {{1, 100, 1}});
  for (int copy = 0; copy < 2; ++copy) {
    h.Deliver(0, push);
    EXPECT_EQ(h.Answer(0), "applied");
  }
}

TEST_F(Fencing, WhyTheJobFailedIsToldToTheDeadToo) {
  h.Kill(0);
  h.state.phase = wire::Phase::kFailed;
  h.state.failure = "server 1 at host:2 was lost";
  h.Publish();
  h.SkipAnswers();
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_EQ(h.Answer(0), "error job_failed: server 1 at host:2 was lost");
}

TEST_F(Fencing, AJobThatHasEndedWellTakesNothingMore) {
  const TableId sync = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.Deliver(0, h.Pull(0, sync, {1}, 1));
  h.SkipAnswers();
  h.state.phase = wire::Phase::kEnded;
  h.Publish();
  EXPECT_EQ(h.Answer(0), "error job_failed: the job has ended");
  h.Deliver(0, h.Push(0, table, {{1, 1, 1}}));
  EXPECT_EQ(h.Answer(0), "error job_failed: the job has ended");
  EXPECT_EQ(h.Stored(table, 1), std::nullopt);
}

TEST_F(Fencing, WhoWaitsAtASlotThatMovesAwayIsSentOn) {
  const TableId sync = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, sync, {1}, 1));
  h.state.slots[1] = {0, 1, 2, h.state.version.Next(), wire::kNoServer, {}};
  h.Publish();
  EXPECT_EQ(h.Answer(0), "error unavailable: server 0 thread 0 is no longer the owner of some slots");
}

TEST(HelloReplies, BothKindsLetLargeFramesIn) {
  BufferPool pool;
  EXPECT_TRUE(
      IsHelloReply(*wire::EncodeControl(wire::HelloReply{wire::kProtocolVersion, StateVersion{1}}, pool)));
  EXPECT_TRUE(IsHelloReply(*wire::EncodeControl(wire::ReplicaHelloReply{wire::kProtocolVersion, 0}, pool)));
  EXPECT_FALSE(IsHelloReply(*wire::EncodeControl(wire::Refusal{1, Code::kUnavailable, "later"}, pool)));
}

}  // namespace
}  // namespace cairn::server

// What a launcher says of a process that it has started: it has ended (rules 5 and 44). Nobody waits for
// the silence of that process, and nobody else is harmed by the word.
#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kSecond = 1'000'000;

SchedulerOptions Owners(uint32_t replicas) {
  SchedulerOptions o = FakeCluster::Options(3, 2);
  o.slot_count = 24;
  o.replicas = replicas;
  return o;
}

struct Ended : ::testing::Test {
  explicit Ended(uint32_t replicas = 2) : c(Owners(replicas)) {}
  FakeCluster c;
  FakeNode s0, s1, s2, w0, w1;
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), s2 = c.Server(9002), w0 = c.Worker(1), w1 = c.Worker(2);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    for (FakeNode* node : {&s0, &s1, &s2, &w0, &w1}) c.Beat(*node);
  }
  // As `cairn run` does it: by a connection of its own. Returns that one.
  ConnId Say(uint64_t uid) {
    const ConnId conn = c.NewConn();
    c.Tell(conn, wire::ProcessEnded{uid});
    EXPECT_TRUE(c.Last<wire::StatusReply>(conn)) << "the launcher repeats it until it has an answer";
    return conn;
  }
};

struct EndedOneCopy : Ended {
  EndedOneCopy() : Ended(1) {}
};

TEST_F(Ended, AServerIsTakenOutAtOnce) {
  Say(s1.hello.uid);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().failovers, 8u);
  EXPECT_TRUE(
      c.Logged("server 1 (10.0.1.1:9001) is lost: its process has ended; 8 partitions of it went on"));
}

TEST_F(EndedOneCopy, ItsPartitionsAreGivenUpAtOnce) {
  Say(s1.hello.uid);
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("server 1 (10.0.1.1:9001) is lost: its process has ended"),
            std::string::npos)
      << c.state().failure;
}

TEST_F(EndedOneCopy, WhoRanOutOfMemoryIsNotAdvisedToTakeMoreOfIt) {
  const ConnId conn = c.NewConn();
  c.Tell(conn, wire::ProcessEnded{s1.hello.uid, true});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("its process has ended: it ran out of memory"), std::string::npos)
      << c.state().failure;
  EXPECT_NE(c.state().failure.find("servers with more memory"), std::string::npos) << c.state().failure;
  EXPECT_EQ(c.state().failure.find("--replicas"), std::string::npos) << c.state().failure;
}

TEST_F(EndedOneCopy, SoAreThoseOfOneThatWasSilentAndNeeded) {
  c.Advance(20 * kSecond, {&s0, &s2, &w0, &w1});
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
  ASSERT_TRUE(c.Logged("it gets up to 60.0 s to come back"));
  Say(s1.hello.uid);
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
}

TEST_F(Ended, TheLastCopyIsGivenUpAtOnceWhenBothOwnersHaveEnded) {
  Say(s1.hello.uid);
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
  Say(s2.hello.uid);
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("server 2 (10.0.1.1:9002) is lost: its process has ended"),
            std::string::npos)
      << c.state().failure;
}

TEST_F(Ended, TheWordCountsWhileTheSchedulerHearsNobody) {
  c.Advance(10 * kSecond);
  ASSERT_EQ(c.state().servers.size(), 3u);
  Say(s1.hello.uid);
  EXPECT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().servers.size(), 2u) << "nobody else is blamed";
  EXPECT_EQ(c.state().workers.size(), 2u);
}

TEST_F(Ended, AWorkerIsTakenOutAtOnce) {
  Say(w1.hello.uid);
  ASSERT_EQ(c.state().workers.size(), 1u);
  EXPECT_EQ(c.state().workers[0].rank, Rank(0));
  EXPECT_TRUE(c.Logged("worker 1 is dead: its process has ended; the others go on without it"));
}

TEST_F(Ended, OnlyTheUidNamesAProcess) {
  const wire::ClusterState before = c.state();
  // Neither an index, a rank, an incarnation nor nothing at all: these can be read or guessed.
  for (uint64_t uid = 0; uid <= 10; ++uid)
    if (uid != w0.hello.uid && uid != w1.hello.uid) Say(uid);
  Say(s1.hello.uid + 100);
  EXPECT_EQ(c.state(), before);
  c.Advance(10 * kSecond, {&s0, &s1, &s2, &w0, &w1});
  EXPECT_EQ(c.state(), before);
}

// Whoever knows it could end the server: nobody is told it but the server and its launcher.
TEST_F(Ended, NobodyIsToldTheUidOfAnother) {
  s1.hello.uid = 0x1234'5678'9abc'def0;  // found by its digits
  s1.hello.endpoint.port = 9003;
  FakeNode known = c.Register(s1);
  c.Advance(2 * kSecond, {&s0, &known, &s2, &w0, &w1});
  const std::string digits = std::to_string(known.hello.uid);
  const auto reply = c.Last<wire::StatusReply>(Say(99));
  EXPECT_EQ(reply->json.find(digits), std::string::npos) << reply->json;
  EXPECT_FALSE(c.Logged(digits));
  BufferPool pool;
  for (const auto& [conn, messages] : c.network.sent) {
    if (conn == known.conn) continue;
    for (const wire::ControlMessage& message : messages) {
      const Buffer bytes = wire::Flatten(*wire::EncodeControl(message, pool), pool);
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const std::string_view raw(reinterpret_cast<const char*>(&known.hello.uid), sizeof known.hello.uid);
      EXPECT_EQ(text.find(raw), std::string_view::npos);
    }
  }
}

TEST_F(Ended, TheProcessAfterItIsNotMeant) {
  FakeNode again = s1;  // started again at the same address
  again.hello.uid = 4711;
  again = c.Register(again);
  const wire::ClusterState before = c.state();
  ASSERT_NE(before.FindServer(again.rank), nullptr);
  Say(s1.hello.uid);  // comes late
  EXPECT_EQ(c.state(), before);
  EXPECT_FALSE(c.Logged("its process has ended"));
}

TEST_F(Ended, SaidTwiceItIsTheSame) {
  Say(s1.hello.uid);
  const wire::ClusterState before = c.state();
  Say(s1.hello.uid);
  EXPECT_EQ(c.state(), before);
  EXPECT_EQ(c.CountLogged("its process has ended"), 1u);
}

TEST_F(Ended, OneThatIsHeardAgainIsToldToStartAgain) {
  Say(s1.hello.uid);
  const wire::ClusterState before = c.state();
  s1.conn = c.NewConn();
  c.Tell(s1.conn, s1.beat);  // it was under way, or the word was wrong
  EXPECT_EQ(c.state(), before);
  const auto refusal = c.Last<wire::Refusal>(s1.conn);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, Code::kRetired);
  c.Tell(s1.conn, s1.hello);
  EXPECT_EQ(c.state(), before);
  EXPECT_EQ(c.Last<wire::Refusal>(s1.conn)->code, Code::kRetired);
}

TEST_F(Ended, OneThatHasLeftStaysDone) {
  c.Tell(w1.conn, wire::Leave{w1.incarnation});
  const wire::ClusterState before = c.state();
  Say(w1.hello.uid);
  EXPECT_EQ(c.state(), before);
  EXPECT_EQ(c.state().done_ranks, std::vector<uint32_t>{1});
}

TEST_F(Ended, ASchedulerThatStartsAgainKnowsWhoIsMeant) {
  c.Restart();
  Say(s1.hello.uid);
  EXPECT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

TEST_F(Ended, WhenTheJobIsOverItIsNotAwaited) {
  c.Tell(c.NewConn(), wire::AbortJob{"enough"});
  for (FakeNode* node : {&s0, &s2, &w0, &w1}) c.Beat(*node);
  c.Advance(100'000);
  ASSERT_FALSE(c.scheduler->finished()) << "server 1 has not been told";
  Say(s1.hello.uid);
  EXPECT_TRUE(c.scheduler->finished());
}

}  // namespace
}  // namespace cairn::scheduler

// Silence that everybody shares is the scheduler's own (rule 5): what a cut of the scheduler does, and
// what it does not.
#include "scheduler/core/fake_cluster.h"
#include "scheduler/core/hearing.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kSecond = 1'000'000;

struct Cut : ::testing::Test {
  FakeCluster c{Options()};
  FakeNode s0, s1, s2, w0, w1;
  static SchedulerOptions Options() {
    SchedulerOptions o = FakeCluster::Options(3, 2);
    o.slot_count = 24;
    o.replicas = 2;
    return o;
  }
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), s2 = c.Server(9002), w0 = c.Worker(1), w1 = c.Worker(2);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    for (FakeNode* node : All()) c.Beat(*node);
  }
  std::vector<FakeNode*> All() { return {&s0, &s1, &s2, &w0, &w1}; }
  void ExpectNobodyBlamed() {
    EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << c.state().failure;
    EXPECT_EQ(c.state().servers.size(), 3u);
    EXPECT_EQ(c.state().workers.size(), 2u);
    EXPECT_EQ(c.state().failovers, 0u);
  }
};

TEST_F(Cut, FromEverybodyBlamesNobody) {
  for (int64_t seconds : {3, 10, 20, 50}) {
    c.Advance(seconds * kSecond);
    // They come back one after the other, each just before the time of those that are still away is up.
    c.Advance(2 * kSecond, {&s0});
    c.Advance(2 * kSecond, {&s0, &w1});
    c.Advance(2 * kSecond, {&s0, &w1, &s2});
    c.Advance(kSecond / 2, {&s0, &w1, &s2, &w0});
    c.Advance(6 * kSecond, All());
    ExpectNobodyBlamed();
  }
  EXPECT_TRUE(c.Logged("this scheduler may be cut off"));
  EXPECT_TRUE(c.Logged("nodes are heard again"));
}

TEST_F(Cut, ThatEndsBetweenTwoTicksBlamesNobody) {
  for (int i = 0; i < 20; ++i) {
    c.now_us += 100'000;
    c.scheduler->OnTick(c.now_us);
  }
  c.Beat(s0);
  c.Advance(4'900'000, {&s0});
  ExpectNobodyBlamed();
}

TEST_F(Cut, WhoStaysAwayAfterwardsIsTakenOut) {
  c.Advance(10 * kSecond);
  c.Advance(4'900'000, {&s0, &s1, &w0});
  ExpectNobodyBlamed();
  c.Advance(5'500'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().FindServer(2), nullptr);
  EXPECT_EQ(c.state().workers.size(), 1u);
}

TEST_F(Cut, OthersGetMoreTimeOnlyOncePerSilence) {
  c.Advance(10 * kSecond);
  c.Advance(4 * kSecond, {&s0});
  c.Advance(4 * kSecond, {&s0, &s1});
  c.Advance(4 * kSecond, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().workers.size(), 1u) << "worker 1 had its extra time when server 1 came back";
}

TEST_F(Cut, RackThatIsReallyDeadIsTakenOutAsEver) {
  c.Advance(5'100'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().FindServer(2), nullptr);
  EXPECT_EQ(c.state().workers.size(), 1u);
}

TEST_F(Cut, EverybodyDeadIsReportedInTheEnd) {
  c.Advance(59 * kSecond);
  ExpectNobodyBlamed();
  c.Advance(11 * kSecond);
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("is lost: not heard for 60"), std::string::npos) << c.state().failure;
}

TEST_F(Cut, RejoiningStandsStillToo) {
  c.Tell(w0.conn, wire::Leave{w0.incarnation});
  c.Advance(5'100'000, {&s0, &s1, &s2});  // worker 1 dies; its successor has 30 s
  ASSERT_TRUE(c.state().workers.empty());
  c.Advance(20 * kSecond, {&s0, &s1, &s2});
  c.Advance(40 * kSecond);
  c.Advance(5 * kSecond, {&s0, &s1, &s2});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "it could not come back in these 40 s";
  c.Advance(8 * kSecond, {&s0, &s1, &s2});
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
}

// Seed 12003363 of the simulator: every rank is given up, and nobody can be told of the end.
TEST_F(Cut, EndOfTheJobWaitsForThoseWhoCanBeTold) {
  for (uint32_t rank : {0, 1}) c.Tell(c.NewConn(), wire::GiveUp{rank});
  c.Restart();  // cut off from everybody since its start
  c.Advance(20 * kSecond);
  EXPECT_EQ(c.state().workers.size(), 2u);
  EXPECT_FALSE(c.scheduler->finished());
  for (FakeNode* node : {&s0, &s1, &s2}) node->conn = c.NewConn();
  c.Advance(11 * kSecond, {&s0});
  ASSERT_EQ(c.state().phase, wire::Phase::kFailed) << "no worker finished";
  c.Advance(10 * kSecond, {&s0});
  EXPECT_FALSE(c.scheduler->finished()) << "servers 1 and 2 have not been told";
  c.Advance(kSecond, {&s0, &s1, &s2});
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Cut, ForAWholeDetectionTimeIsToldToTheDriverWhileTheJobRuns) {
  c.Advance(4'900'000);
  EXPECT_FALSE(c.scheduler->cut_off());
  c.Advance(200'000);
  EXPECT_TRUE(c.scheduler->cut_off()) << "where there are others, one of them may hear somebody";
  c.Advance(100'000, {&s0});
  EXPECT_FALSE(c.scheduler->cut_off());
  c.Tell(c.NewConn(), wire::AbortJob{"enough"});
  c.Advance(20 * kSecond);
  EXPECT_FALSE(c.scheduler->cut_off()) << "the job is over, whoever leads";
}

TEST_F(Cut, NewestConnectionOfANodeIsKept) {
  const ConnId old = s0.conn;
  s0.conn = c.NewConn();
  c.Beat(s0);
  ASSERT_EQ(c.network.closed.size(), 1u);
  EXPECT_EQ(c.network.closed[0], old);
  // What it said before on the old one comes late, and does not bring that back.
  std::swap(s0.conn, const_cast<ConnId&>(old));
  c.Beat(s0);
  const ConnId newest = old;
  c.network.sent.clear();
  (void)c.Worker(9);  // a change that everybody is told
  EXPECT_FALSE(c.network.sent[newest].empty());
}

// --- the class by itself ---

struct Heard : ::testing::Test {
  Hearing h{{kSecond, 5 * kSecond, 60 * kSecond}, 0};
  const Incarnation a{1}, b{2}, c{3};
  void Look(int64_t now_us, bool goes_on_here = false) {
    h.Look(now_us, [goes_on_here] { return goes_on_here; });
  }
};

TEST_F(Heard, NodesOfThisHostCountIfThereAreNoOthers) {
  h.Hear(a, Hearing::Where::kThisHost, 0);
  h.Hear(b, Hearing::Where::kThisHost, 0);
  for (int64_t t = 0; t <= 6; ++t) {
    h.Hear(a, Hearing::Where::kThisHost, t * kSecond);
    Look(t * kSecond);
  }
  EXPECT_FALSE(h.isolated());
  EXPECT_TRUE(h.Overdue(b, 6 * kSecond));
}

TEST_F(Heard, NodesOfThisHostDoNotCountBesideOthersUnlessTheyCouldGoOnAlone) {
  h.Hear(a, Hearing::Where::kThisHost, 0);
  h.Hear(b, Hearing::Where::kElsewhere, 0);
  for (int64_t t = 0; t <= 10; ++t) {
    h.Hear(a, Hearing::Where::kThisHost, t * kSecond);
    Look(t * kSecond);
  }
  EXPECT_TRUE(h.isolated());
  EXPECT_FALSE(h.Overdue(b, 10 * kSecond));
  Look(10 * kSecond, /*goes_on_here=*/true);
  EXPECT_FALSE(h.isolated());
  EXPECT_TRUE(h.Overdue(b, 10 * kSecond)) << "another machine is dead, and this one goes on";
}

TEST_F(Heard, NodesThatAreGoneAreNotOfThisHost) {
  h.Hear(a, Hearing::Where::kThisHost, 0);
  h.Hear(b, Hearing::Where::kThisHost, 0);
  h.Hear(c, Hearing::Where::kElsewhere, 0);
  h.Forget(b);
  for (int64_t t = 0; t <= 10; ++t) {
    h.Hear(a, Hearing::Where::kThisHost, t * kSecond);
    Look(t * kSecond);
  }
  EXPECT_TRUE(h.isolated());
  EXPECT_FALSE(h.Overdue(c, 10 * kSecond)) << "of two nodes one is elsewhere";
}

TEST_F(Heard, WhoseEndIsKnownIsNotAwaited) {
  h.Hear(a, Hearing::Where::kElsewhere, 0);
  h.MarkDead(a);
  EXPECT_TRUE(h.Overdue(a, 1));
  EXPECT_TRUE(h.Lost(a, 1));
  EXPECT_FALSE(h.Lately(a, 1));
}

TEST_F(Heard, AnotherSilenceAfterOneThatCountedIsSharedAgain) {
  h.Hear(a, Hearing::Where::kElsewhere, 0);
  h.Hear(b, Hearing::Where::kElsewhere, 0);
  Look(60 * kSecond);
  EXPECT_FALSE(h.isolated());
  EXPECT_TRUE(h.Overdue(b, 60 * kSecond));
  h.Hear(a, Hearing::Where::kElsewhere, 61 * kSecond);
  Look(70 * kSecond);
  EXPECT_TRUE(h.isolated());
  EXPECT_FALSE(h.Overdue(a, 70 * kSecond));
}

TEST_F(Heard, WaitingForTheStoreIsNobodysSilence) {
  h.Hear(a, Hearing::Where::kElsewhere, 0);
  h.Hear(b, Hearing::Where::kElsewhere, 0);
  h.Excuse(4 * kSecond);
  EXPECT_FALSE(h.Overdue(a, 8 * kSecond));
  EXPECT_TRUE(h.Overdue(a, 9 * kSecond));
  EXPECT_EQ(h.SilenceUs(a, 8 * kSecond), 4 * kSecond);
}

}  // namespace
}  // namespace cairn::scheduler

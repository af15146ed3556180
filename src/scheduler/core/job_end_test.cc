// Deaths, lost servers, and how a job ends (rules 5, 7, 10).
#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

struct Job : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 2)};
  FakeNode s0, s1, w0, w1;
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
    for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  }
  void Leave(const FakeNode& worker) { c.Tell(worker.conn, wire::Leave{worker.incarnation}); }
};

TEST_F(Job, SilentWorkerIsRemovedAndRetired) {
  c.Advance(4'800'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().workers.size(), 2u);
  c.Advance(300'000, {&s0, &s1, &w0});
  ASSERT_EQ(c.state().workers.size(), 1u);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.Beat(w0);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting, "rank 1 is dead, not yet restarted");
  c.Beat(w1);
  EXPECT_EQ(c.Last<wire::Refusal>(w1.conn)->code, Code::kRetired);
  Leave(w1);
  EXPECT_FALSE(c.Last<wire::LeaveReply>(w1.conn).has_value());
  // Its successor without a wish gets the free rank.
  EXPECT_EQ(c.Worker(3).rank, 1u);
}

TEST_F(Job, PausedSchedulerBlamesNobody) {
  c.now_us += 60'000'000;
  c.scheduler->OnTick(c.now_us);
  EXPECT_EQ(c.state().workers.size(), 2u);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_TRUE(c.Logged("the scheduler itself did not run for 60.0 s"));
  c.Advance(5'100'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().workers.size(), 1u) << "a full dead_after later";
}

TEST_F(Job, RestartGivesEverybodyAFullDeadAfter) {
  c.Advance(4'900'000, {&s0, &s1, &w0});
  c.Restart();
  c.Advance(4'800'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().workers.size(), 2u);
  c.Advance(300'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().workers.size(), 1u);
}

TEST_F(Job, LostServerFailsTheJobAndNamesIt) {
  c.Advance(59'900'000, {&s0, &w0, &w1});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning)
      << "it may only be cut off, and nobody has its partitions";
  c.Advance(100'000, {&s0, &w0, &w1});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("server 1 (10.0.1.1:9001) is lost: not heard for 60.0 s"),
            std::string::npos)
      << c.state().failure;
  EXPECT_EQ(c.Last<wire::StateMessage>(w0.conn)->state.failure, c.state().failure);
  c.Beat(s0);
  EXPECT_FALSE(c.scheduler->finished()) << "the workers have not been heard with the news";
  c.Beat(w0), c.Beat(w1);
  EXPECT_TRUE(c.scheduler->finished());
  EXPECT_EQ(c.Last<wire::Refusal>(c.Worker(9).conn)->code, Code::kJobFailed);
}

TEST_F(Job, ServerThatCameBackUnderItsAddressIsLost) {
  FakeNode fresh = s1;
  fresh.hello.uid = 77;
  fresh = c.Register(fresh);
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_EQ(c.Last<wire::Refusal>(fresh.conn)->code, Code::kJobFailed);
}

TEST_F(Job, EndsWhenEveryRankIsDoneAndServersConfirm) {
  Leave(w0);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(w0.conn).has_value());
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().done_ranks, std::vector<uint32_t>{0});
  Leave(w1);
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
  Leave(w1);  // the answer was lost
  EXPECT_TRUE(c.Last<wire::LeaveReply>(w1.conn).has_value());
  c.Beat(w1);
  EXPECT_TRUE(std::holds_alternative<wire::LeaveReply>(c.network.sent[w1.conn].back()));
  c.scheduler->OnDisconnect(w0.conn, c.now_us);
  c.scheduler->OnDisconnect(w1.conn, c.now_us);
  c.Beat(s0);
  EXPECT_FALSE(c.scheduler->finished());
  c.Beat(s1);
  EXPECT_FALSE(c.scheduler->finished()) << "the connections may have broken, and the workers come back";
  c.Advance(300'000, {&s0, &s1});
  EXPECT_TRUE(c.scheduler->finished());
  EXPECT_EQ(c.Last<wire::Refusal>(c.Worker(9).conn)->code, Code::kJobFailed);
}

TEST_F(Job, WorkerWhoseAnswerWasLostFindsTheSchedulerStillThere) {
  Leave(w0), Leave(w1);
  c.scheduler->OnDisconnect(w0.conn, c.now_us);
  c.scheduler->OnDisconnect(w1.conn, c.now_us);
  c.Advance(200'000, {&s0, &s1});
  w1.conn = c.NewConn();
  Leave(w1);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(w1.conn).has_value());
  c.Advance(1'000'000, {&s0, &s1});
  EXPECT_FALSE(c.scheduler->finished()) << "it has not closed";
  c.scheduler->OnDisconnect(w1.conn, c.now_us);
  c.Advance(300'000, {&s0, &s1});
  EXPECT_TRUE(c.scheduler->finished());
}

// A server that is only cut off must hear of the end. One that has closed its connection is gone.
TEST_F(Job, EndedSchedulerStaysForAServerUntilItIsLost) {
  Leave(w0), Leave(w1);
  c.Restart();  // confirmations and connections are forgotten, the end is not
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
  EXPECT_FALSE(c.scheduler->finished());
  c.Beat(s0);
  EXPECT_FALSE(c.scheduler->finished());
  c.Advance(59'000'000);
  EXPECT_FALSE(c.scheduler->finished());
  c.Advance(2'000'000);
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Job, EndedSchedulerDoesNotStayForAServerThatHasClosedItsConnection) {
  Leave(w0), Leave(w1);
  for (const FakeNode* worker : {&w0, &w1}) c.scheduler->OnDisconnect(worker->conn, c.now_us);
  c.scheduler->OnDisconnect(s1.conn, c.now_us);
  c.Advance(4'800'000, {&s0});
  EXPECT_FALSE(c.scheduler->finished()) << "it may come back";
  c.Advance(500'000, {&s0});
  EXPECT_TRUE(c.scheduler->finished());
}

// Seed 12004282 of the simulator: the process was killed on its way out, started again, and died.
TEST_F(Job, DoneStaysDoneWhenTheRankComesBackAndDies) {
  Leave(w1);
  FakeNode again = c.Worker(3, 1);
  c.Tell(c.NewConn(), wire::GiveUp{0});
  c.Tell(c.NewConn(), wire::GiveUp{1});
  c.Advance(5'100'000, {&s0, &s1});  // ranks 0 and 1 die
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded) << c.state().failure;
  EXPECT_EQ(c.state().done_ranks, std::vector<uint32_t>{1});
  EXPECT_EQ(c.durable().given_up_ranks, std::set<uint32_t>{0});
}

TEST_F(Job, DeadRankIsGivenUpAfterTheGraceOnceNobodyElseIsLeft) {
  c.Advance(5'100'000, {&s0, &s1, &w0});
  c.Advance(60'000'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "rank 0 still works";
  Leave(w0);
  c.Advance(29'000'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.Advance(2'000'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
}

// A scheduler that did not run could not have heard of a restarted worker either.
TEST_F(Job, APauseOfTheSchedulerTakesNothingFromTheGrace) {
  c.Advance(5'100'000, {&s0, &s1});
  ASSERT_TRUE(c.state().workers.empty());
  c.Advance(20'000'000, {&s0, &s1});
  c.now_us += 60'000'000;
  c.scheduler->OnTick(c.now_us);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.Advance(29'000'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "a full grace from the pause on";
  c.Advance(2'000'000, {&s0, &s1});
  EXPECT_TRUE(c.Logged("are given up: not restarted within 30.0 s"));
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
}

// The same for the time that it spends waiting for its store.
TEST_F(Job, WaitingForTheStoreTakesNothingFromTheGrace) {
  c.Advance(5'100'000, {&s0, &s1});
  ASSERT_TRUE(c.state().workers.empty());
  for (int i = 0; i < 20; ++i) {  // each too short to look like a pause
    c.Advance(1'000'000, {&s0, &s1});
    c.now_us += 2'000'000;
    c.scheduler->OnWaited(2'000'000);
  }
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.Advance(8'500'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "20 s and 8.5 s of 30 s";
  c.Advance(2'000'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
}

TEST_F(Job, GiveUpEndsTheWait) {
  c.Advance(5'100'000, {&s0, &s1, &w0});
  Leave(w0);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  const ConnId launcher = c.NewConn();
  c.Tell(launcher, wire::GiveUp{1});
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
  c.Tell(launcher, wire::GiveUp{17});
  EXPECT_EQ(c.Last<wire::Refusal>(launcher)->code, Code::kInvalidArgument);
}

TEST_F(Job, GiveUpOfALiveRankCountsWhenItIsDead) {
  c.Tell(c.NewConn(), wire::GiveUp{1});
  EXPECT_EQ(c.state().workers.size(), 2u);
  Leave(w0);
  c.Advance(5'100'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
}

TEST_F(Job, FailsIfNobodyIsDone) {
  c.Tell(c.NewConn(), wire::GiveUp{0});
  c.Tell(c.NewConn(), wire::GiveUp{1});
  c.Advance(5'100'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("ranks 0, 1 were given up"), std::string::npos) << c.state().failure;
}

TEST_F(Job, DoneRankMayComeAgain) {
  Leave(w1);
  FakeNode again = c.Worker(3, 1);
  EXPECT_EQ(again.rank, 1u);
  EXPECT_TRUE(c.state().done_ranks.empty());
  Leave(w0);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

TEST_F(Job, AbortFailsTheJobWithItsReason) {
  c.Tell(c.NewConn(), wire::AbortJob{"rank 1 exited with 3"});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_EQ(c.state().failure, "rank 1 exited with 3");
  Leave(w0);
  EXPECT_EQ(c.Last<wire::Refusal>(w0.conn)->code, Code::kJobFailed);
}

TEST(FormingJob, GivenUpRankIsNotAwaited) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode server = c.Server(9000), w0 = c.Worker(1);
  EXPECT_EQ(c.state().phase, wire::Phase::kForming);
  c.Tell(c.NewConn(), wire::GiveUp{1});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

// A worker that closes with the news on its way has them, or is gone; one that closed before may come back.
TEST_F(Job, FailedSchedulerDoesNotStayForAWorkerThatClosedAfterTheNews) {
  c.Tell(c.NewConn(), wire::AbortJob{"enough"});
  c.Beat(s0), c.Beat(s1), c.Beat(w0);
  c.scheduler->OnDisconnect(w1.conn, c.now_us);
  EXPECT_FALSE(c.scheduler->finished());
  c.Advance(300'000, {&s0, &s1, &w0});
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Job, FailedSchedulerStaysForAWorkerThatClosedBeforeTheNews) {
  c.scheduler->OnDisconnect(w1.conn, c.now_us);
  c.Tell(c.NewConn(), wire::AbortJob{"enough"});
  c.Beat(s0), c.Beat(s1), c.Beat(w0);
  c.Advance(1'000'000, {&s0, &s1, &w0});
  EXPECT_FALSE(c.scheduler->finished());
  w1.conn = c.NewConn();
  c.Beat(w1, /*takes_state=*/false);
  EXPECT_EQ(c.Last<wire::StateMessage>(w1.conn)->state.failure, "enough");
  c.Beat(w1);
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Job, EndedSchedulerThatStartsAgainWaitsForWorkersThatMayNotHaveTheirAnswer) {
  Leave(w0), Leave(w1);
  c.Restart();
  for (FakeNode* node : {&s0, &s1}) {
    node->conn = c.NewConn();
    c.Beat(*node);
  }
  c.Advance(4'800'000, {&s0, &s1});
  EXPECT_FALSE(c.scheduler->finished());
  w1.conn = c.NewConn();
  Leave(w1);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(w1.conn).has_value());
  c.scheduler->OnDisconnect(w1.conn, c.now_us);
  c.Advance(400'000, {&s0, &s1});
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Job, ASchedulerThatStartsWhenEverybodyHasBeenToldWaitsForNobody) {
  Leave(w0), Leave(w1);
  for (const FakeNode* worker : {&w0, &w1}) c.scheduler->OnDisconnect(worker->conn, c.now_us);
  EXPECT_FALSE(c.durable().end_told);
  c.Beat(s0), c.Beat(s1);
  c.Advance(400'000);
  ASSERT_TRUE(c.scheduler->finished());
  EXPECT_TRUE(c.durable().end_told);
  c.Restart();
  c.Advance(100'000);
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Job, ALateHeartbeatTakesNoConfirmationOfTheEndBack) {
  FakeNode late = s0;
  Leave(w0), Leave(w1);
  for (const FakeNode* worker : {&w0, &w1}) c.scheduler->OnDisconnect(worker->conn, c.now_us);
  c.Beat(s0), c.Beat(s1);
  c.Beat(late, /*takes_state=*/false);
  c.Advance(400'000);
  EXPECT_TRUE(c.scheduler->finished());
}

TEST_F(Job, EndedSchedulerStaysForASilentServerADetectionTimeAtLeast) {
  FakeCluster quick(FakeCluster::Options(1, 1));
  quick.options.lost_after_us = 1'000'000;
  quick.Start();
  FakeNode server = quick.Server(9000), worker = quick.Worker(1);
  quick.Beat(server), quick.Beat(worker);
  quick.Tell(worker.conn, wire::Leave{worker.incarnation});
  quick.scheduler->OnDisconnect(worker.conn, quick.now_us);
  quick.Advance(3'000'000);
  EXPECT_FALSE(quick.scheduler->finished()) << "it is not known to be dead";
  quick.Advance(3'000'000);
  EXPECT_TRUE(quick.scheduler->finished());
}

TEST_F(Job, TheFirstReasonOfAFailureStays) {
  c.Tell(c.NewConn(), wire::AbortJob{""});
  EXPECT_EQ(c.state().failure, "aborted");
  const auto version = c.state().version;
  c.Tell(c.NewConn(), wire::AbortJob{"another"});
  EXPECT_EQ(c.state().failure, "aborted");
  EXPECT_EQ(c.state().version, version);
}

TEST_F(Job, AWorkerThatComesBackBeginsTheGraceAnew) {
  c.Advance(5'100'000, {&s0, &s1});
  ASSERT_TRUE(c.state().workers.empty());
  c.Advance(20'000'000, {&s0, &s1});
  FakeNode again = c.Worker(5, 1);
  c.Advance(1'000'000, {&s0, &s1, &again});
  c.Advance(5'100'000, {&s0, &s1});
  ASSERT_TRUE(c.state().workers.empty());
  c.Advance(20'000'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "30 s from when the last one died";
  c.Advance(11'000'000, {&s0, &s1});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
}

TEST_F(Job, WithTheJobAPendingViewEnds) {
  FakeNode w2 = c.Worker(3);
  ASSERT_NE(c.state().pending_view, ViewNumber(0));
  Leave(w0), Leave(w1), Leave(w2);
  EXPECT_EQ(c.state().phase, wire::Phase::kEnded);
  EXPECT_EQ(c.state().pending_view, ViewNumber(0));
  FakeCluster failed(FakeCluster::Options(1, 1));
  failed.Start();
  (void)failed.Server(9000), (void)failed.Worker(1), (void)failed.Worker(2);
  ASSERT_NE(failed.state().pending_view, ViewNumber(0));
  failed.Tell(failed.NewConn(), wire::AbortJob{"enough"});
  EXPECT_EQ(failed.state().phase, wire::Phase::kFailed);
  EXPECT_EQ(failed.state().pending_view, ViewNumber(0));
}

}  // namespace
}  // namespace cairn::scheduler

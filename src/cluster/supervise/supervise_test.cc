#include "cluster/supervise/supervise.h"

#include <gtest/gtest.h>

#include <csignal>

#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

// A job of one server and two workers that runs.
class Supervise : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(Show(supervisor_.Begin(0)), "start scheduler");
    EXPECT_EQ(Show(supervisor_.OnSchedulerReady(1)), "start server 0; start worker 0; start worker 1");
  }
  std::string End(const NodeName& node, const ProcessEnd& end) {
    return Show(supervisor_.OnEnd(node, end, now_));
  }
  std::string Tick(int64_t at_ms) { return Show(supervisor_.OnTick(now_ = at_ms)); }

  Supervisor supervisor_{{.servers = 1,
                          .workers = 2,
                          .max_restarts = {.count = 2, .window_ms = 0},
                          .leave_grace_ms = 30'000,
                          .late_server_grace_ms = 2'000,
                          .give_up_every_ms = 1'000,
                          .stop_grace_ms = 5'000,
                          .interrupt_grace_ms = 7'000}};
  int64_t now_ = 10;
};

TEST_F(Supervise, AGoodJobEndsWithCodeZero) {
  EXPECT_EQ(End(Worker(1), kClean), "");
  EXPECT_EQ(End(Worker(0), kClean), "");
  EXPECT_FALSE(supervisor_.finished());
  EXPECT_EQ(End(Server(0), kClean), "");
  EXPECT_EQ(End(kScheduler, kClean), "");
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Supervise, ServersMayLeaveBeforeTheWorkersProcessesEnd) {
  EXPECT_EQ(End(Server(0), kClean), "");
  EXPECT_EQ(End(kScheduler, kClean), "");
  EXPECT_FALSE(supervisor_.finished());
  End(Worker(0), kClean);
  End(Worker(1), kClean);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Supervise, AKilledWorkerIsStartedAgainUpToTheLimitOfTheJob) {
  EXPECT_EQ(End(Worker(1), kKilled), "start worker 1");
  EXPECT_EQ(End(Worker(0), kKilled), "start worker 0");
  EXPECT_EQ(End(Worker(1), kKilled), "give up 1");
  // The scheduler may have been away: it is told again.
  EXPECT_EQ(Tick(2'000), "give up 1");
  EXPECT_EQ(Tick(2'500), "");
  // The others finish, and the job's exit code still tells of the lost one.
  End(Worker(0), kClean);
  End(Server(0), kClean);
  End(kScheduler, kClean);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 128 + SIGKILL);
}

TEST(SuperviseRate, RestartsOfLongAgoDontCount) {
  Supervisor supervisor({.servers = 1, .workers = 2, .max_restarts = {.count = 1, .window_ms = 60'000}});
  supervisor.Begin(0);
  supervisor.OnSchedulerReady(1);
  EXPECT_EQ(Show(supervisor.OnEnd(Worker(1), kKilled, 1'000)), "start worker 1");
  EXPECT_EQ(Show(supervisor.OnEnd(Worker(0), kKilled, 2'000)), "start worker 0") << "each has its own";
  EXPECT_EQ(Said(supervisor.OnEnd(Worker(1), kKilled, 61'000)),
            "worker 1 was killed by signal 9 (Killed): starting it again (1 of 1 within 1 min)\n");
  const Actions actions = supervisor.OnEnd(Worker(1), kKilled, 62'000);
  EXPECT_EQ(Show(actions), "give up 1");
  EXPECT_EQ(Said(actions),
            "worker 1 was killed by signal 9 (Killed) and is given up: 1 restart within 1 min is used up "
            "(--max-restarts)\n");
  EXPECT_EQ(supervisor.restarts(), 3u);
}

// `cairn scale --workers`
class Scaled : public Supervise {
 protected:
  std::string Seen(uint32_t workers) { return Show(supervisor_.OnWorkersWanted(workers, ++now_)); }
};

TEST_F(Scaled, MoreWorkersAreStarted) {
  EXPECT_EQ(Seen(0), "");
  EXPECT_EQ(Seen(4), "start worker 2; start worker 3");
  EXPECT_EQ(Seen(4), "");
  for (uint32_t rank = 0; rank < 4; ++rank) End(Worker(rank), kClean);
  EXPECT_EQ(Tick(2'000), "give up 0; give up 1; give up 2; give up 3") << "also those that never joined";
  EXPECT_EQ(supervisor_.workers().done(), 4u);
}

TEST_F(Scaled, AWorkerThatIsToldToGoEndsAsItLikes) {
  EXPECT_EQ(Seen(1), "terminate worker 1");
  EXPECT_EQ(End(Worker(1), {.signal = SIGTERM}), "give up 1") << "not started again";
  EXPECT_EQ(Seen(2), "start worker 1");
  EXPECT_EQ(Tick(2'000), "") << "its rank is no longer given up";
  EXPECT_EQ(Seen(1), "terminate worker 1");
  EXPECT_EQ(End(Worker(1), {.code = 1}), "give up 1") << "an error while it goes does not end the job";
  End(Worker(0), kClean);
  End(Server(0), kClean);
  End(kScheduler, kClean);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Scaled, AWorkerThatDoesNotGoIsKilled) {
  EXPECT_EQ(Seen(1), "terminate worker 1");
  EXPECT_EQ(Tick(30'010), "");
  EXPECT_EQ(Tick(30'011), "kill worker 1");
  EXPECT_EQ(End(Worker(1), kKilled), "give up 1");
}

// `cairn stop`
TEST_F(Supervise, AJobThatIsToBeStoppedStopsItsWorkersFirst) {
  EXPECT_EQ(Show(supervisor_.OnStop(now_)), "terminate worker 0; terminate worker 1");
  EXPECT_EQ(Show(supervisor_.OnStop(now_)), "") << "once";
  EXPECT_EQ(Tick(7'009), "") << "time to save";
  EXPECT_EQ(End(Worker(0), {.signal = SIGTERM}), "");
  EXPECT_EQ(Tick(7'010), "kill worker 1");
  EXPECT_EQ(End(Worker(1), kKilled), "terminate scheduler; terminate server 0");
  End(kScheduler, {.code = 143});
  End(Server(0), {.code = 130});
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_TRUE(supervisor_.verdict().stopped());
  EXPECT_EQ(supervisor_.exit_code(), 143);
}

TEST_F(Supervise, OneThatIsStoppedAfterAWorkerWasGivenUpIsStoppedAllTheSame) {
  for (int i = 0; i < 3; ++i) End(Worker(1), kKilled);
  EXPECT_EQ(supervisor_.exit_code(), 128 + SIGKILL);
  EXPECT_EQ(Show(supervisor_.OnStop(now_)), "terminate worker 0");
  EXPECT_EQ(supervisor_.exit_code(), 143);
  EXPECT_TRUE(supervisor_.verdict().stopped());
}

TEST_F(Supervise, AJobThatTheSchedulerHasStoppedIsStoppedToo) {
  supervisor_.OnFailure(std::string(kStoppedWords));
  EXPECT_EQ(End(Worker(0), {.code = 1}), "terminate worker 1");
  EXPECT_TRUE(supervisor_.verdict().stopped());
  EXPECT_EQ(supervisor_.exit_code(), 143);
}

TEST_F(Supervise, AWorkerThatCrashesAfterItHasLeftTheJobIsNotStartedAgain) {
  EXPECT_EQ(End(Worker(1), {.signal = 11, .left_job = true}), "");
  EXPECT_EQ(End(Worker(0), kClean), "");
  End(Server(0), kClean);
  End(kScheduler, kClean);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 128 + 11);
}

TEST_F(Supervise, AWorkerThatEndsWellWithoutLeavingTheJobIsCountedApart) {
  End(Worker(1), kClean);
  End(Worker(0), kClean);
  EXPECT_EQ(supervisor_.workers().done(), 2u);
  supervisor_.OnSeen(
      {.asked_ms = 20, .answered = true, .over = true, .anybody_joined = true, .given_up = {1, 7}}, 20);
  EXPECT_EQ(supervisor_.workers().done(), 1u);
  EXPECT_EQ(supervisor_.workers().not_left(), 1u);
  End(Server(0), kClean);
  End(kScheduler, kClean);
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Supervise, WorkersThatNeverUseTheJobAreDoneWhenTheyEndWell) {
  End(Worker(1), kClean);
  End(Worker(0), kClean);
  supervisor_.OnSeen({.asked_ms = 20, .answered = true, .over = true, .given_up = {0, 1}}, 20);
  EXPECT_EQ(supervisor_.workers().done(), 2u);
  EXPECT_EQ(supervisor_.workers().not_left(), 0u);
}

TEST_F(Supervise, NobodyIsStartedAgainWhenTheJobIsOver) {
  End(Server(0), kClean);
  End(kScheduler, kClean);
  EXPECT_EQ(End(Worker(1), kKilled), "");
  End(Worker(0), kClean);
  EXPECT_TRUE(supervisor_.finished());
}

TEST_F(Supervise, AWorkerThatAsksForItIsStartedAgain) {
  EXPECT_EQ(End(Worker(1), {.code = kStartAgainCode}), "start worker 1");
  EXPECT_EQ(End(Worker(0), kKilled), "start worker 0");
  EXPECT_EQ(End(Worker(1), {.code = kStartAgainCode}), "give up 1") << "it counts among the restarts";
}

TEST_F(Supervise, AFailingWorkerEndsTheJobWithItsCodeAndItsLastLines) {
  const Actions actions = supervisor_.OnEnd(Worker(1), {.code = 3}, now_);
  EXPECT_EQ(Show(actions), "terminate worker 0");
  EXPECT_EQ(Said(actions), "worker 1 exited with code 3: the job ends\n");
  EXPECT_EQ(End(Worker(0), {.signal = SIGTERM}), "terminate scheduler; terminate server 0");
  EXPECT_EQ(End(Server(0), {.code = 143}), "");
  EXPECT_EQ(End(kScheduler, {.code = 143}), "tail worker 1");
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 3);
}

TEST_F(Supervise, ADeadServerEndsTheJobAndIsNamed) {
  const Actions actions = supervisor_.OnEnd(Server(0), kKilled, now_);
  EXPECT_NE(Said(actions).find("server 0 was killed by signal 9 (Killed)"), std::string::npos)
      << Said(actions);
  EXPECT_EQ(Show(actions), "terminate worker 0; terminate worker 1");
  End(Worker(0), kClean);
  EXPECT_EQ(End(Worker(1), {.code = 1}), "terminate scheduler");
  End(kScheduler, {.code = 143});
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 128 + SIGKILL);
}

TEST_F(Supervise, EachKindHasItsOwnRestarts) {
  EXPECT_EQ(End(Worker(1), kKilled), "start worker 1");
  EXPECT_EQ(End(Worker(1), kKilled), "start worker 1");
  EXPECT_EQ(End(kScheduler, kKilled), "start scheduler");
  EXPECT_EQ(End(kScheduler, kKilled), "start scheduler");
  EXPECT_EQ(supervisor_.restarts(), 4u);
}

TEST_F(Supervise, AKilledSchedulerIsStartedAgainAndNobodyElseIs) {
  EXPECT_EQ(End(kScheduler, kKilled), "start scheduler");
  EXPECT_EQ(Show(supervisor_.OnSchedulerReady(now_)), "");
  EXPECT_EQ(End(kScheduler, kKilled), "start scheduler");
  // The third time is one too many.
  EXPECT_EQ(End(kScheduler, kKilled), "terminate worker 0; terminate worker 1");
}

TEST_F(Supervise, ASchedulerThatGivesUpEndsTheJob) {
  EXPECT_EQ(End(kScheduler, {.code = 1}), "terminate worker 0; terminate worker 1");
  EXPECT_EQ(supervisor_.exit_code(), 1);
}

TEST_F(Supervise, RanksThatNeverJoinedAreGivenUpSoThatTheServersLeave) {
  End(Worker(0), kClean);
  End(Worker(1), kClean);
  EXPECT_EQ(Tick(500), "");
  EXPECT_EQ(Tick(1'100), "give up 0; give up 1");
  // To the servers that job has failed; the workers' word counts.
  EXPECT_EQ(End(Server(0), {.code = 1}), "");
  EXPECT_EQ(End(kScheduler, {.code = 1}), "");
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Supervise, WhoDoesNotLeaveIsKilledAndThatIsAnError) {
  End(Worker(0), kClean);
  End(Worker(1), kClean);
  EXPECT_EQ(Tick(30'009), "give up 0; give up 1");
  const Actions actions = supervisor_.OnTick(30'010);
  EXPECT_EQ(Show(actions), "kill scheduler; kill server 0");
  EXPECT_NE(Said(actions).find("server 0"), std::string::npos);
  End(kScheduler, kKilled);
  EXPECT_EQ(End(Server(0), kKilled), "");
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 1);
}

// The job was over before the server could register: nobody will tell it, so it is told to stop.
TEST_F(Supervise, AServerThatTheSchedulerNeverKnewIsStopped) {
  End(Worker(0), kClean);
  End(Worker(1), kClean);
  now_ = 1'000;
  End(kScheduler, kClean);
  EXPECT_EQ(Tick(2'900), "give up 0; give up 1");
  EXPECT_EQ(Tick(3'000), "terminate server 0");
  EXPECT_EQ(End(Server(0), {.signal = SIGTERM}), "");
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Supervise, CtrlCStopsWorkersFirstAndThenTheRest) {
  EXPECT_EQ(Show(supervisor_.OnInterrupt(SIGINT, now_)), "interrupt worker 0; interrupt worker 1");
  EXPECT_EQ(End(Worker(0), {.signal = SIGINT}), "");
  EXPECT_EQ(End(Worker(1), {.code = 1}), "terminate scheduler; terminate server 0");
  End(kScheduler, {.code = 143});
  End(Server(0), {.code = 143});
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 130);
}

TEST_F(Supervise, AWorkerThatIgnoresCtrlCIsTerminatedAndThenKilled) {
  supervisor_.OnInterrupt(SIGINT, now_);
  EXPECT_EQ(Tick(7'009), "");
  EXPECT_EQ(Tick(7'010), "terminate worker 0; terminate worker 1");
  EXPECT_EQ(Tick(12'009), "");
  EXPECT_EQ(Tick(12'010), "kill worker 0; kill worker 1");
}

TEST_F(Supervise, ATerminatedLauncherTerminates) {
  EXPECT_EQ(Show(supervisor_.OnInterrupt(SIGTERM, now_)), "terminate worker 0; terminate worker 1");
}

TEST_F(Supervise, ASecondCtrlCKills) {
  supervisor_.OnInterrupt(SIGINT, now_);
  EXPECT_EQ(Show(supervisor_.OnInterrupt(SIGINT, now_)),
            "kill scheduler; kill server 0; kill worker 0; kill worker 1");
  for (const NodeName& node : {kScheduler, Server(0), Worker(0), Worker(1)}) End(node, kKilled);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 130);
}

TEST_F(Supervise, AWorkerThatIgnoresTheStopIsKilledInTime) {
  supervisor_.OnInterrupt(SIGTERM, now_);
  End(Worker(0), kClean);
  EXPECT_EQ(Tick(5'009), "");
  EXPECT_EQ(Tick(5'010), "kill worker 1");
  EXPECT_EQ(End(Worker(1), kKilled), "terminate scheduler; terminate server 0");
  EXPECT_EQ(Tick(10'010), "kill scheduler; kill server 0");
  End(kScheduler, kKilled);
  End(Server(0), kKilled);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 143);
}

TEST_F(Supervise, AProgramThatCannotBeStartedEndsTheJob) {
  const Actions actions = supervisor_.OnStartFailed(Worker(0), "no such file", now_);
  EXPECT_EQ(Show(actions), "terminate worker 1");
  EXPECT_EQ(Said(actions), "worker 0 can't be started: no such file\n");
  EXPECT_EQ(supervisor_.exit_code(), 127);
}

TEST(SuperviseStart, ASchedulerThatNeverListensEndsTheJobBeforeAnybodyElseIsStarted) {
  Supervisor supervisor({.servers = 1, .workers = 1});
  supervisor.Begin(0);
  EXPECT_EQ(Show(supervisor.OnEnd(kScheduler, {.code = 1}, 5)), "");
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 1);
}

TEST(SuperviseStart, CtrlCBeforeTheSchedulerListens) {
  Supervisor supervisor({.servers = 1, .workers = 1});
  supervisor.Begin(0);
  EXPECT_EQ(Show(supervisor.OnInterrupt(SIGINT, 1)), "terminate scheduler");
  EXPECT_EQ(Show(supervisor.OnSchedulerReady(2)), "");
  supervisor.OnEnd(kScheduler, kClean, 3);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 130);
}

TEST_F(Supervise, AProgramThatNeverUsedCairnIsNoFailure) {
  End(Worker(0), kClean);
  End(Worker(1), kClean);
  // An answer from before the workers had ended says nothing.
  EXPECT_EQ(Show(supervisor_.OnSeen({.asked_ms = 5, .answered = true}, now_)), "");
  const Actions actions = supervisor_.OnSeen({.asked_ms = 20, .answered = true}, now_);
  EXPECT_EQ(Show(actions), "terminate scheduler; terminate server 0");
  EXPECT_NE(Said(actions).find("no worker has used Cairn"), std::string::npos);
  End(kScheduler, {.code = 143});
  End(Server(0), {.code = 143});
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Supervise, AJobThatWasUsedEndsByItself) {
  End(Worker(0), kClean);
  End(Worker(1), kClean);
  EXPECT_EQ(Show(supervisor_.OnSeen({.asked_ms = 20, .answered = true, .anybody_joined = true}, now_)), "");
  EXPECT_EQ(Show(supervisor_.OnSeen({.asked_ms = 20, .answered = false}, now_)), "");
}

TEST_F(Supervise, TheSchedulersReasonIsTheCause) {
  supervisor_.OnSeen({.asked_ms = 1, .answered = true, .over = true, .failure = "server 0 is lost"}, now_);
  const Actions actions = supervisor_.OnEnd(kScheduler, {.code = 1}, now_);
  EXPECT_EQ(Said(actions), "the job has failed: server 0 is lost: the job ends\n");
  EXPECT_EQ(supervisor_.cause(), "server 0 is lost");
}

TEST_F(Supervise, TheHeadlineIsNotSaidTwice) {
  supervisor_.OnReason("cairn: the job has failed: the job has failed: server 0 is lost");
  EXPECT_EQ(Said(supervisor_.OnEnd(Server(0), {.code = 1}, now_)),
            "the job has failed: server 0 is lost: the job ends\n");
  EXPECT_EQ(supervisor_.cause(), "server 0 is lost");
}

TEST_F(Supervise, TheSchedulersLastWordsAreInTheSummary) {
  supervisor_.OnReason("cairn: scheduler: the log can't be written: No space left on device");
  EXPECT_EQ(Said(supervisor_.OnEnd(kScheduler, {.code = 1}, now_)),
            "scheduler exited with code 1: scheduler: the log can't be written: No space left on device; the "
            "job ends\n");
  EXPECT_EQ(supervisor_.cause(),
            "scheduler exited with code 1: scheduler: the log can't be written: No space left on device");
}

TEST_F(Supervise, TroubleOfTheLaunchersOwnStopsEverything) {
  EXPECT_EQ(Show(supervisor_.OnTrouble(141, "nobody reads", now_)), "terminate worker 0; terminate worker 1");
  EXPECT_FALSE(supervisor_.interrupted());
  EXPECT_EQ(supervisor_.exit_code(), 141);
}

}  // namespace
}  // namespace cairn::cluster

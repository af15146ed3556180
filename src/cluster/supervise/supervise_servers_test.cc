// Servers that die, come back, leave and are wanted.
#include <gtest/gtest.h>

#include "base/memory_limits.h"
#include "cluster/supervise/supervise.h"
#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

// Two servers, each with a copy of what the other one has.
class Owners : public ::testing::Test {
 protected:
  void SetUp() override {
    supervisor_.Begin(0);
    EXPECT_EQ(Show(supervisor_.OnSchedulerReady(1)), "start server 0; start server 1; start worker 0");
  }
  std::string End(const NodeName& node, const ProcessEnd& end) {
    return Show(supervisor_.OnEnd(node, end, now_));
  }
  std::string Seen(uint32_t wanted, std::set<uint32_t> leaving = {}) {
    JobSeen seen{.asked_ms = ++now_, .answered = true, .anybody_joined = true};
    seen.servers = {wanted, std::move(leaving)};
    return Show(supervisor_.OnSeen(seen, now_));
  }
  void SeenCopies(bool copied) {
    JobSeen seen{.asked_ms = ++now_, .answered = true, .copied = copied};
    supervisor_.OnSeen(seen, ++now_);
  }
  Supervisor supervisor_{
      {.servers = 2, .workers = 1, .replicas = 2, .max_restarts = {.count = 2, .window_ms = 0}}};
  int64_t now_ = 10;
};

TEST_F(Owners, AKilledServerIsStartedAgain) {
  const ProcessEnd killed{.signal = SIGKILL, .has_copies = true};
  const Actions actions = supervisor_.OnEnd(Server(1), killed, now_);
  EXPECT_EQ(Show(actions), "start server 1");
  EXPECT_NE(Said(actions).find("copied back"), std::string::npos) << Said(actions);
  EXPECT_EQ(End(Server(0), {.code = kStartAgainCode}), "start server 0") << "it was taken for dead";
}

TEST_F(Owners, TheSchedulerIsToldThatItHasEndedBeforeAnotherOneStarts) {
  EXPECT_EQ(End(Server(1), {.signal = SIGKILL, .uid = 71}), "ended 71; start server 1");
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 999)), "");
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 1000)), "ended 71") << "the scheduler may have been away";
  EXPECT_EQ(End(Server(0), {.code = kStartAgainCode, .uid = 72}), "ended 72; start server 0");
  supervisor_.OnToldEnded(71);
  supervisor_.OnToldEnded(72);
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 5000)), "");
}

TEST_F(Owners, NobodyIsToldOfOneThatHasLeftOrEndsWithTheJob) {
  Seen(1, {1});
  EXPECT_EQ(End(Server(1), {.uid = 71}), "");
  EXPECT_EQ(Show(supervisor_.OnInterrupt(SIGTERM, now_)), "terminate worker 0");
  EXPECT_EQ(End(Server(0), {.signal = SIGKILL, .uid = 72}), "");
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 2000)), "");
}

// Killed between its word that the job is over and its own end, it would wait for servers that are gone.
TEST_F(Owners, ASchedulerThatBeginsAgainIsToldWhoHasGone) {
  EXPECT_EQ(End(Worker(0), {}), "");
  EXPECT_EQ(End(Server(0), {.uid = 71}), "");
  EXPECT_EQ(End({wire::Role::kScheduler, 0}, {.signal = SIGKILL}), "start scheduler");
  EXPECT_EQ(Show(supervisor_.OnTick(now_)), "ended 71");
  EXPECT_EQ(End(Server(1), {.uid = 72}), "");
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 1)), "ended 72");
  supervisor_.OnToldEnded(71);
  supervisor_.OnToldEnded(72);
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 2)), "");
  EXPECT_EQ(End({wire::Role::kScheduler, 0}, {.signal = SIGKILL}), "start scheduler");
  EXPECT_EQ(Show(supervisor_.OnTick(now_ + 3)), "ended 71; ended 72");
}

TEST_F(Owners, OneThatIsNotStartedAgainIsSaidToHaveEndedToo) {
  Seen(1, {1});
  EXPECT_EQ(End(Server(1), {.signal = SIGKILL, .servers = ServersSeen{1, {1}}, .uid = 71}), "ended 71");
}

TEST_F(Owners, AServerThatRanOutOfMemoryIsSaidToBe) {
  const Actions actions = supervisor_.OnEnd(Server(1), {.code = kOutOfMemoryCode}, now_);
  EXPECT_EQ(Show(actions), "start server 1");
  EXPECT_NE(Said(actions).find("server 1 ran out of memory (exit code 140): starting it again"),
            std::string::npos)
      << Said(actions);
  Supervisor one{{.servers = 1, .workers = 1, .replicas = 1, .max_restarts = 2}};
  one.Begin(0);
  one.OnSchedulerReady(1);
  const std::string said = Said(one.OnEnd(Server(0), {.code = kOutOfMemoryCode}, now_));
  EXPECT_NE(said.find("ran out of memory"), std::string::npos) << said;
  EXPECT_NE(said.find("servers with more memory"), std::string::npos) << said;
  EXPECT_EQ(said.find("--replicas"), std::string::npos) << "more copies would need more memory: " << said;
}

TEST_F(Owners, OthersHaveCopiesIsSaidOnlyIfItIsKnown) {
  EXPECT_EQ(Said(supervisor_.OnEnd(Server(1), kKilled, now_)).find("copies"), std::string::npos);
  const ProcessEnd last{.signal = SIGKILL, .has_copies = false};
  const std::string said = Said(supervisor_.OnEnd(Server(0), last, now_));
  EXPECT_EQ(said.find("others have copies"), std::string::npos) << said;
  EXPECT_NE(said.find("the job ends"), std::string::npos) << said;
}

TEST_F(Owners, OfAFailedJobTheServersAreTheCauseAndNotTheWorkers) {
  SeenCopies(true);
  EXPECT_EQ(End(Server(0), kKilled), "start server 0");
  EXPECT_EQ(End(Server(1), kKilled), "start server 1");
  supervisor_.OnFailure("server 1 is lost");
  EXPECT_EQ(End(Worker(0), {.code = 1}), "terminate scheduler; terminate server 0; terminate server 1");
  EXPECT_EQ(supervisor_.cause(),
            "servers 0 and 1 died before their partitions were copied again: server 1 is lost");
  EXPECT_EQ(supervisor_.exit_code(), 1);
}

TEST_F(Owners, DeathsThatWereMadeGoodAreNotTheCause) {
  SeenCopies(true);
  End(Server(0), kKilled);
  SeenCopies(true);
  End(Server(1), kKilled);
  supervisor_.OnFailure("server 1 is lost");
  End(Worker(0), {.code = 1});
  EXPECT_EQ(supervisor_.cause(), "server 1 is lost");
}

TEST_F(Owners, WhatAServerSaysWhenItIsStoppedIsNotTheCause) {
  EXPECT_EQ(End(kScheduler, {.code = 143}), "terminate worker 0");
  supervisor_.OnReason("told to stop by SIGINT");
  End(Worker(0), kClean);
  supervisor_.OnReason("told to stop by SIGINT");
  End(Server(0), {.code = 130});
  EXPECT_EQ(supervisor_.cause(), "scheduler exited with code 143");
}

TEST_F(Owners, AServerThatIsKilledTooOftenIsGivenUpAsLongAsThereIsAnother) {
  End(Server(1), kKilled);
  End(Server(1), kKilled);
  const Actions actions = supervisor_.OnEnd(Server(1), kKilled, now_);
  EXPECT_EQ(Show(actions), "");
  EXPECT_NE(Said(actions).find("given up"), std::string::npos) << Said(actions);
  EXPECT_EQ(Seen(2), "") << "nor does the scheduler's wish bring it back";
  EXPECT_EQ(End(Server(0), kKilled), "terminate worker 0");
  EXPECT_EQ(supervisor_.exit_code(), 128 + SIGKILL);
}

TEST_F(Owners, AServerThatASignalEndedIsStartedAgainEvenIfItCouldSaySo) {
  EXPECT_EQ(End(Server(1), {.code = 128 + SIGTERM}), "start server 1");
}

TEST_F(Owners, WhatARestartedServerSaidIsNotWhyTheJobEndsLater) {
  supervisor_.OnReason("server 1 is lost to the job");
  EXPECT_EQ(End(Server(1), {.code = kStartAgainCode}), "start server 1");
  EXPECT_EQ(End(Server(0), {.code = 1}), "terminate worker 0");
  EXPECT_EQ(supervisor_.cause().find("lost to the job"), std::string::npos) << supervisor_.cause();
}

TEST_F(Owners, AServerThatFailsEndsTheJob) {
  EXPECT_EQ(End(Server(1), {.code = 1}), "terminate worker 0");
  EXPECT_EQ(supervisor_.exit_code(), 1);
}

TEST_F(Owners, TheSchedulersWordOnCopiesCounts) {
  JobSeen seen{.asked_ms = 20, .answered = true, .replicas = 1};
  supervisor_.OnSeen(seen, 20);
  EXPECT_EQ(End(Server(1), kKilled), "terminate worker 0");
}

// Of two servers one leaves: one copy is wanted then, but the other one is there until it goes.
TEST_F(Owners, WhileOneOfTwoLeavesEitherMayDie) {
  JobSeen seen{.asked_ms = now_, .answered = true, .replicas = 1};
  seen.servers = {1, {1}};
  supervisor_.OnSeen(seen, ++now_);
  EXPECT_EQ(End(Server(1), {.signal = SIGKILL, .has_copies = true, .servers = ServersSeen{1, {1}}}), "")
      << "the one that leaves";
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Owners, WhileOneOfTwoLeavesTheOtherIsStartedAgain) {
  JobSeen seen{.asked_ms = now_, .answered = true, .replicas = 1};
  seen.servers = {1, {1}};
  supervisor_.OnSeen(seen, ++now_);
  EXPECT_EQ(End(Server(0), {.signal = SIGKILL}), "start server 0")
      << "the scheduler is away and says nothing";
}

TEST_F(Owners, WithoutCopiesTheJobEndsThoughOneLeaves) {
  JobSeen seen{.asked_ms = now_, .answered = true, .replicas = 1};
  seen.servers = {1, {1}};
  supervisor_.OnSeen(seen, ++now_);
  EXPECT_EQ(End(Server(0), {.signal = SIGKILL, .has_copies = false}), "terminate worker 0");
}

TEST_F(Owners, AServerKilledWhenTheJobIsOverIsNotStartedAgain) {
  End(Worker(0), kClean);
  EXPECT_EQ(End(Server(1), kKilled), "");
  End(Server(0), kClean);
  End(kScheduler, kClean);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(Owners, MoreServersAreStartedWhenTheyAreWanted) {
  EXPECT_EQ(Seen(2), "");
  EXPECT_EQ(Seen(4), "start server 2; start server 3");
  EXPECT_EQ(Seen(4), "");
}

TEST_F(Owners, ServersThatLeaveAreNoDeaths) {
  EXPECT_EQ(Seen(4), "start server 2; start server 3");
  EXPECT_EQ(Seen(3, {3}), "");
  EXPECT_EQ(End(Server(3), kClean), "");
  // What was asked before it had ended still counts it among those that leave.
  JobSeen old{.asked_ms = now_, .answered = true};
  old.servers = {3, {3}};
  EXPECT_EQ(Show(supervisor_.OnSeen(old, now_)), "");
  EXPECT_EQ(Seen(3), "");
  EXPECT_EQ(Seen(4), "start server 3");
  EXPECT_EQ(supervisor_.restarts(), 0u);
}

TEST_F(Owners, AServerThatIsKilledWhileItLeavesIsNotNeeded) {
  EXPECT_EQ(Seen(1, {1}), "");
  const Actions actions = supervisor_.OnEnd(Server(1), kKilled, now_);
  EXPECT_EQ(Show(actions), "");
  EXPECT_NE(Said(actions).find("while it was leaving: it is not started again"), std::string::npos)
      << Said(actions);
  EXPECT_EQ(Seen(1), "");
}

// Of two servers one leaves, and the one that is to stay is killed: that one is started again, and it counts.
TEST_F(Owners, AServerThatStaysIsStartedAgainAlsoWhileAnotherOneLeaves) {
  EXPECT_EQ(Seen(1, {1}), "");
  const Actions actions = supervisor_.OnEnd(Server(0), kKilled, now_);
  EXPECT_EQ(Show(actions), "start server 0");
  EXPECT_EQ(Said(actions).find("not started again"), std::string::npos) << Said(actions);
  EXPECT_EQ(supervisor_.restarts(), 1u);
  EXPECT_EQ(Seen(1, {1}), "");
  EXPECT_EQ(End(Server(1), {.servers = ServersSeen{1, {1}}}), "");
  EXPECT_EQ(Seen(1), "");
}

// The scheduler has not yet noticed the death: its answers still have the server as one that goes.
TEST_F(Owners, AServerThatWasKilledWhileItLeftStaysAway) {
  EXPECT_EQ(End(Server(1), {.signal = SIGKILL, .servers = ServersSeen{2, {1}}}), "start server 1")
      << "two are wanted";
  EXPECT_EQ(Seen(1, {1}), "");
  EXPECT_EQ(End(Server(1), {.signal = SIGKILL, .servers = ServersSeen{1, {1}}}), "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Seen(1), "") << "it runs no more, so it is not among those that go";
}

// `cairn scale` has just asked for one server, and the launcher hears of it together with the death.
TEST_F(Owners, WhatTheSchedulerWantsAtTheTimeOfTheDeathCounts) {
  EXPECT_EQ(End(Server(1), {.signal = SIGKILL, .servers = ServersSeen{1, {1}}}), "");
  EXPECT_EQ(Seen(1), "");
  EXPECT_EQ(supervisor_.restarts(), 0u);
}

TEST_F(Owners, AServerThatStaysIsStartedAgainThoughTheLauncherHasNotHeardYetThatAnotherOneLeaves) {
  EXPECT_EQ(End(Server(0), {.signal = SIGKILL, .servers = ServersSeen{1, {1}}}), "start server 0");
}

TEST_F(Owners, AServerThatHasLeftIsSaidToHaveLeftThoughNobodySawItLeave) {
  const Actions actions = supervisor_.OnEnd(Server(1), {.servers = ServersSeen{1, {1}}}, now_);
  EXPECT_EQ(Said(actions), "server 1 has left: its partitions are on other servers\n");
}

TEST_F(Owners, AServerThatLeftThoughItIsWantedIsReplaced) {
  JobSeen seen{.asked_ms = ++now_, .answered = true, .servers = {2, {1}}};
  const Actions actions = supervisor_.OnSeen(seen, now_);
  EXPECT_EQ(Show(actions), "start server 2");
  EXPECT_EQ(Said(actions), "starting server 2: the job is to have 2 servers, and server 1 is leaving\n");
  EXPECT_EQ(End(Server(1), kClean), "");
  EXPECT_EQ(Seen(2), "");
}

}  // namespace
}  // namespace cairn::cluster

// Servers that die, come back, leave and are wanted.
#include <gtest/gtest.h>

#include "cluster/supervise.h"
#include "cluster/supervise_words.h"

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
  std::string Seen(uint32_t wanted, uint32_t leaving = 0) {
    JobSeen seen{.asked_ms = ++now_, .answered = true, .anybody_joined = true};
    seen.servers_wanted = wanted;
    seen.servers_leaving = leaving;
    return Show(supervisor_.OnSeen(seen, now_));
  }
  void SeenCopies(bool copied) {
    JobSeen seen{.asked_ms = ++now_, .answered = true, .copied = copied};
    supervisor_.OnSeen(seen, ++now_);
  }
  Supervisor supervisor_{{.servers = 2, .workers = 1, .replicas = 2, .max_restarts = 2}};
  int64_t now_ = 10;
};

TEST_F(Owners, AKilledServerIsStartedAgain) {
  const ProcessEnd killed{.signal = SIGKILL, .has_copies = true};
  const Actions actions = supervisor_.OnEnd(Server(1), killed, now_);
  EXPECT_EQ(Show(actions), "start server 1");
  EXPECT_NE(Said(actions).find("copied back"), std::string::npos) << Said(actions);
  EXPECT_EQ(End(Server(0), {.code = kStartAgainCode}), "start server 0") << "it was taken for dead";
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
  EXPECT_EQ(supervisor_.cause(), "servers 0 and 1 died before their partitions were copied anew: server 1 is lost");
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
  EXPECT_EQ(Seen(3, 1), "");
  EXPECT_EQ(End(Server(3), kClean), "");
  // What was asked before it had ended still counts it among those that leave.
  JobSeen old{.asked_ms = now_, .answered = true};
  old.servers_wanted = 3;
  old.servers_leaving = 1;
  EXPECT_EQ(Show(supervisor_.OnSeen(old, now_)), "");
  EXPECT_EQ(Seen(3), "");
  EXPECT_EQ(Seen(4), "start server 3");
  EXPECT_EQ(supervisor_.restarts(), 0u);
}

TEST_F(Owners, AServerThatIsKilledWhileItLeavesIsNotNeeded) {
  EXPECT_EQ(Seen(1, 1), "");
  EXPECT_EQ(End(Server(1), kKilled), "");
  EXPECT_EQ(Seen(1), "");
}

TEST_F(Owners, AServerThatLeftThoughItIsWantedIsReplaced) {
  EXPECT_EQ(Seen(2, 1), "start server 2");
  EXPECT_EQ(End(Server(1), kClean), "");
  EXPECT_EQ(Seen(2), "");
}

}  // namespace
}  // namespace cairn::cluster

#include "cluster/supervise/job_stages.h"

#include <gtest/gtest.h>

#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

using Farewell = JobStages::Farewell;

// A scheduler, a server and a worker that run.
class Stages : public ::testing::Test {
 protected:
  Stages() {
    for (const NodeName& node : {kScheduler, Server(0), Worker(0)}) running_.Start(node);
    stages_.Run();
    actions_.Take();
  }
  std::string End(const NodeName& node, int64_t now_ms) {
    running_.Remove(node);
    stages_.Settle(now_ms);
    return Show(actions_.Take());
  }
  std::string Late(int64_t now_ms) {
    stages_.StopLate(now_ms);
    return Show(actions_.Take());
  }
  const SuperviseOptions options_{.leave_grace_ms = 30'000,
                                  .late_server_grace_ms = 2'000,
                                  .stop_grace_ms = 5'000,
                                  .interrupt_grace_ms = 7'000};
  ActionList actions_;
  RunningNodes running_{actions_};
  JobStages stages_{options_, running_, actions_};
};

TEST_F(Stages, FromRunningToDone) {
  stages_.Settle(10);
  EXPECT_TRUE(stages_.running());
  EXPECT_EQ(End(Worker(0), 10), "");
  EXPECT_TRUE(stages_.leaving());
  End(Server(0), 20);
  End(kScheduler, 20);
  EXPECT_TRUE(stages_.done());
  EXPECT_FALSE(stages_.stubborn());
}

TEST_F(Stages, WhatDoesNotLeaveIsKilled) {
  End(Worker(0), 10);
  EXPECT_EQ(Late(30'009), "");
  EXPECT_EQ(Late(30'010), "kill scheduler; kill server 0");
  EXPECT_TRUE(stages_.stopping());
  EXPECT_TRUE(stages_.stubborn());
}

TEST_F(Stages, AServerThatNobodyWillTellIsStoppedSoonerOnceTheSchedulerHasLeft) {
  stages_.OnSchedulerLeft(5);  // too early: the workers still run
  End(Worker(0), 10);
  EXPECT_EQ(Late(2'010), "");
  running_.Remove(kScheduler);
  stages_.OnSchedulerLeft(3'000);
  EXPECT_EQ(Late(5'000), "terminate server 0");
  EXPECT_FALSE(stages_.stubborn());
}

TEST_F(Stages, WorkersAreStoppedFirst) {
  stages_.StopWorkers(Farewell::kTerminate, 0);
  EXPECT_EQ(Show(actions_.Take()), "terminate worker 0");
  EXPECT_EQ(Late(5'000), "kill worker 0");
  EXPECT_EQ(End(Worker(0), 6'000), "terminate scheduler; terminate server 0");
  EXPECT_EQ(Late(11'000), "kill scheduler; kill server 0");
}

TEST_F(Stages, AnInterruptIsFollowedBySigterm) {
  stages_.StopWorkers(Farewell::kInterrupt, 0);
  EXPECT_EQ(Show(actions_.Take()), "interrupt worker 0");
  EXPECT_EQ(Late(6'999), "");
  EXPECT_EQ(Late(7'000), "terminate worker 0");
  EXPECT_EQ(Late(12'000), "kill worker 0");
}

TEST_F(Stages, TimeToSave) {
  stages_.StopWorkers(Farewell::kTerminateWithTimeToSave, 0);
  EXPECT_EQ(Show(actions_.Take()), "terminate worker 0");
  EXPECT_EQ(Late(6'999), "");
  EXPECT_EQ(Late(7'000), "kill worker 0");
}

TEST_F(Stages, OnlyAnAnswerFromAfterTheWorkersEndedSaysThatNobodyJoined) {
  End(Worker(0), 10);
  stages_.OnSeenLeaving({.asked_ms = 9, .answered = true});
  EXPECT_FALSE(stages_.unused());
  stages_.OnSeenLeaving({.asked_ms = 10, .answered = true});
  EXPECT_TRUE(stages_.unused());
}

}  // namespace
}  // namespace cairn::cluster

#include "cluster/supervise/worker_supervisor.h"

#include <gtest/gtest.h>

#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

class Workers : public ::testing::Test {
 protected:
  Workers() {
    running_.Start(kScheduler);
    workers_.StartAll();
    actions_.Take();
  }
  std::optional<Failure> End(uint32_t rank, const ProcessEnd& end) {
    running_.Remove(Worker(rank));
    return workers_.OnEnd(Worker(rank), end, 10);
  }
  const SuperviseOptions options_{.workers = 2, .max_restarts = {.count = 1, .window_ms = 0}};
  ActionList actions_;
  RunningNodes running_{actions_};
  Restarts restarts_{options_.max_restarts, running_, actions_};
  JobVerdict verdict_;
  WorkerSupervisor workers_{options_, {running_, actions_, restarts_, verdict_}};
};

TEST_F(Workers, AnErrorOfTheProgramIsAFailureAndItsLastLinesTellMore) {
  const std::optional<Failure> failure = End(1, {.code = 3});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_EQ(failure->tail, Worker(1));
  EXPECT_TRUE(failure->secondary);
}

TEST_F(Workers, AKilledOneIsStartedAgainAndThenGivenUp) {
  EXPECT_FALSE(End(0, kKilled));
  EXPECT_EQ(Show(actions_.Take()), "start worker 0");
  EXPECT_FALSE(End(0, kKilled));
  EXPECT_EQ(Show(actions_.Take()), "give up 0");
  EXPECT_EQ(workers_.given_up(), 1u);
  EXPECT_EQ(verdict_.exit_code(), 137);
}

TEST_F(Workers, TheSchedulerIsToldOfGivenUpRanksAgainAndAgain) {
  End(0, kKilled);
  End(0, kKilled);
  actions_.Take();
  workers_.RepeatGiveUps(false, 1'000);
  EXPECT_EQ(Show(actions_.Take()), "give up 0");
  workers_.RepeatGiveUps(false, 1'999);
  EXPECT_EQ(Show(actions_.Take()), "");
  workers_.RepeatGiveUps(true, 2'000);
  EXPECT_EQ(Show(actions_.Take()), "give up 0; give up 1");
}

TEST_F(Workers, ThoseThatEndedWellAreDoneUnlessTheSchedulerHadToGiveThemUp) {
  End(0, kClean);
  End(1, kClean);
  EXPECT_EQ(workers_.done(), 2u);
  workers_.OnSeen({.answered = true, .anybody_joined = true, .given_up = {1}});
  EXPECT_EQ(workers_.done(), 1u);
  EXPECT_EQ(workers_.not_left(), 1u);
}

TEST_F(Workers, WhenTheSchedulerHasGoneADeathIsNoFailure) {
  running_.Remove(kScheduler);
  EXPECT_FALSE(End(0, kKilled));
  EXPECT_EQ(Show(actions_.Take()), "");
  EXPECT_EQ(workers_.done(), 1u);
}

}  // namespace
}  // namespace cairn::cluster

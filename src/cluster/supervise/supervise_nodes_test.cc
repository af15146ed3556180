// Jobs over several machines, as the launcher of each sees them.
#include <gtest/gtest.h>

#include "cluster/supervise/supervise.h"
#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

SuperviseOptions NodeOf2(uint32_t rank) {
  SuperviseOptions options;
  options.servers = 1;
  options.workers = 2;
  options.nodes = 2;
  options.node_rank = rank;
  options.join_grace_ms = 60'000;
  options.lost_grace_ms = 30'000;
  return options;
}

// The second of two machines, once the scheduler has answered at 1 s.
class SecondNode : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(Show(supervisor_.Begin(0)), "");
    EXPECT_EQ(Show(supervisor_.OnSeen({.asked_ms = 900, .answered = false}, 1'000)), "");
    EXPECT_EQ(Show(supervisor_.OnSeen({.asked_ms = 900, .answered = true}, 1'000)),
              "start server 1; start worker 2; start worker 3");
  }
  Supervisor supervisor_{NodeOf2(1)};
};

TEST_F(SecondNode, StaysWhenItsWorkersAreDoneUntilItsServersLeave) {
  supervisor_.OnSeen({.asked_ms = 2'000, .answered = true, .anybody_joined = true}, 2'000);
  supervisor_.OnEnd(Worker(2), kClean, 2'000);
  supervisor_.OnEnd(Worker(3), kClean, 2'000);
  for (int64_t at = 3'000; at < 1'000'000; at += 10'000) {
    supervisor_.OnSeen({.asked_ms = at, .answered = true, .anybody_joined = true}, at);
    ASSERT_EQ(Show(supervisor_.OnTick(at)), "give up 2; give up 3");
  }
  EXPECT_FALSE(supervisor_.finished());
  supervisor_.OnEnd(Server(1), kClean, 1'000'000);
  EXPECT_TRUE(supervisor_.finished());
  EXPECT_EQ(supervisor_.exit_code(), 0);
}

TEST_F(SecondNode, AFailureHereIsToldToAll) {
  EXPECT_EQ(Show(supervisor_.OnEnd(Worker(3), {.code = 3}, 2'000)),
            "abort: node 1: worker 3 exited with code 3; terminate worker 2");
}

TEST_F(SecondNode, AStopOnOneMachineIsAStopOnAll) {
  Supervisor first(NodeOf2(0));
  first.Begin(0);
  first.OnSchedulerReady(1);
  EXPECT_EQ(Show(first.OnStop(2'000)),
            "abort: node 0: stopped by `cairn stop`; terminate worker 0; terminate worker 1");
  const std::string failure = "node 0: stopped by `cairn stop`";
  supervisor_.OnSeen({.asked_ms = 2'000, .answered = true, .over = true, .failure = failure}, 2'000);
  EXPECT_EQ(supervisor_.exit_code(), 143);
  EXPECT_TRUE(supervisor_.verdict().stopped());
}

TEST_F(SecondNode, AFailureElsewhereEndsItHere) {
  EXPECT_EQ(Show(supervisor_.OnSeen(
                {.asked_ms = 2'000, .answered = true, .over = true, .failure = "node 0: bad"}, 2'000)),
            "abort: node 1: node 0: bad; terminate worker 2; terminate worker 3");
  EXPECT_EQ(supervisor_.cause(), "node 0: bad");
  EXPECT_EQ(supervisor_.exit_code(), 1);
}

TEST_F(SecondNode, AServersLastWordIsTheCause) {
  supervisor_.OnReason("node 0: interrupted");
  EXPECT_EQ(Said(supervisor_.OnEnd(Server(1), {.code = 1}, 2'000)),
            "the job has failed: node 0: interrupted: the job ends\n");
  EXPECT_EQ(supervisor_.cause(), "node 0: interrupted");
}

TEST_F(SecondNode, AVanishedSchedulerEndsIt) {
  EXPECT_EQ(Show(supervisor_.OnTick(30'999)), "");
  EXPECT_EQ(Show(supervisor_.OnTick(31'000)).substr(0, 5), "abort");
  EXPECT_EQ(supervisor_.exit_code(), 1);
}

TEST_F(SecondNode, ASchedulerThatIsCutOffForLessThanItsOwnPatienceEndsNothing) {
  supervisor_.OnSeen({.asked_ms = 2'000, .answered = true, .lost_after_ms = 90'000}, 2'000);
  for (int64_t at = 3'000; at < 92'000; at += 1'000) {
    supervisor_.OnSeen({.asked_ms = at, .answered = false}, at);
    ASSERT_EQ(Show(supervisor_.OnTick(at)), "") << at;
  }
  supervisor_.OnSeen({.asked_ms = 92'000, .answered = true}, 92'000);
  EXPECT_EQ(Show(supervisor_.OnTick(186'999)), "");
  EXPECT_EQ(Show(supervisor_.OnTick(187'000)).substr(0, 5), "abort");
}

TEST(SuperviseNodes, TwentySecondsWithoutTheSchedulerAreNoReasonToEnd) {
  SuperviseOptions options = NodeOf2(1);
  options.lost_grace_ms = SuperviseOptions{}.lost_grace_ms;
  Supervisor supervisor(options);
  supervisor.Begin(0);
  supervisor.OnSeen({.asked_ms = 900, .answered = true}, 1'000);
  EXPECT_EQ(Show(supervisor.OnTick(61'000)), "");
}

TEST_F(SecondNode, TheSchedulerMayGoOnceTheServersHaveLeft) {
  supervisor_.OnEnd(Server(1), kClean, 2'000);
  EXPECT_EQ(Show(supervisor_.OnTick(100'000)), "");
}

TEST(SuperviseNodes, NobodyIsStartedBeforeTheSchedulerAnswersAndTheWaitHasAnEnd) {
  Supervisor supervisor(NodeOf2(1));
  supervisor.Begin(0);
  // An earlier job's scheduler, on its way out.
  EXPECT_EQ(Show(supervisor.OnSeen({.asked_ms = 1, .answered = true, .over = true}, 0)), "");
  EXPECT_EQ(Show(supervisor.OnTick(59'999)), "");
  EXPECT_FALSE(supervisor.finished());
  supervisor.OnTick(60'000);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.exit_code(), 1);
}

}  // namespace
}  // namespace cairn::cluster

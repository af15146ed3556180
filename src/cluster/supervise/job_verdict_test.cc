#include "cluster/supervise/job_verdict.h"

#include <gtest/gtest.h>

#include "cluster/supervise/supervise_options.h"
#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

TEST(JobVerdict, NothingWentWrong) {
  const JobVerdict verdict;
  EXPECT_EQ(verdict.exit_code(), 0);
  EXPECT_EQ(verdict.cause(""), "");
  EXPECT_FALSE(verdict.stopped());
}

TEST(JobVerdict, TheFirstCauseCounts) {
  JobVerdict verdict;
  verdict.Note(137, "worker 1 was given up");
  EXPECT_EQ(verdict.Fail({.exit_code = 3,
                          .cause = "worker 0 exited with code 3",
                          .consequence = ": the job ends",
                          .tail = Worker(0)},
                         ""),
            "worker 0 exited with code 3: the job ends");
  verdict.Note(1, "too late");
  EXPECT_EQ(verdict.exit_code(), 137);
  EXPECT_EQ(verdict.cause(""), "worker 1 was given up");
  EXPECT_EQ(verdict.tail(), Worker(0));
}

TEST(JobVerdict, TheSchedulerKnowsTheCauseOfAConsequence) {
  JobVerdict verdict;
  verdict.OnFailure("cairn: the job has failed: server 1 is lost");
  EXPECT_EQ(verdict.Fail(
                {.cause = "worker 0 exited with code 1", .consequence = ": the job ends", .secondary = true},
                "servers 0 and 1 died"),
            "the job has failed: servers 0 and 1 died: server 1 is lost: the job ends");
  EXPECT_TRUE(verdict.job_failed());
  EXPECT_EQ(verdict.cause(""), "server 1 is lost");
  EXPECT_EQ(verdict.cause("servers 0 and 1 died"), "servers 0 and 1 died: server 1 is lost");
}

TEST(JobVerdict, ItsOwnWordsAreNoNews) {
  JobVerdict verdict;
  verdict.OnAbort("node 1: worker 3 exited with code 3");
  verdict.OnFailure("the job has failed: node 1: worker 3 exited with code 3");
  verdict.Fail({.cause = "worker 3 exited with code 3", .secondary = true}, "");
  EXPECT_FALSE(verdict.job_failed());
  EXPECT_EQ(verdict.cause(""), "worker 3 exited with code 3");
}

TEST(JobVerdict, LastWordsStandInForTheScheduler) {
  JobVerdict verdict;
  verdict.OnLastWords("cairn: the job has failed: server 0 is lost");
  verdict.TakeLastWordsForFailure();
  verdict.OnLastWords("cairn: something else");
  verdict.TakeLastWordsForFailure();
  verdict.Fail({.cause = "server 1 exited with code 1", .secondary = true}, "");
  EXPECT_EQ(verdict.cause(""), "server 0 is lost");
}

TEST(JobVerdict, AStopIsTheCauseWhereverItCameFrom) {
  JobVerdict here;
  here.Note(137, "worker 1 was given up");
  here.Forget();
  here.Fail({.exit_code = kStoppedCode, .cause = std::string(kStoppedWords)}, "");
  EXPECT_TRUE(here.stopped());
  JobVerdict there;
  there.OnFailure("node 0: " + std::string(kStoppedWords));
  there.Fail({.cause = "worker 0 exited with code 1", .secondary = true}, "");
  EXPECT_TRUE(there.stopped());
  EXPECT_EQ(there.exit_code(), kStoppedCode);
}

}  // namespace
}  // namespace cairn::cluster

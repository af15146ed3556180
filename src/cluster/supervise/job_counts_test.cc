#include "cluster/supervise/job_counts.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

// A job of six rounds a second, asked once a second.
struct Rounds : ::testing::Test {
  JobCounts counts;
  int64_t now_ms = 0;
  uint64_t done() const { return static_cast<uint64_t>(now_ms) * 6 / 1000; }
  JobCounts::Totals Ask() {
    now_ms += 1'000;
    return counts.Next({{1, done(), 10 * done()}, {2, done(), 10 * done()}}, now_ms);
  }
  // What a scheduler says that has not heard the servers yet.
  JobCounts::Totals AskNewScheduler() {
    now_ms += 1'000;
    return counts.Next({{1, 0, 0}, {2, 0, 0}}, now_ms);
  }
};

TEST_F(Rounds, TheRateIsThatOfTheLastSeconds) {
  for (int i = 0; i < 10; ++i) Ask();
  EXPECT_NEAR(Ask().rounds_per_s, 6, 0.1);
  const uint64_t rounds = Ask().rounds;
  EXPECT_EQ(rounds, done());
  EXPECT_FALSE(counts.incomplete());
}

TEST_F(Rounds, AFirstAnswerIsNoRate) {
  now_ms = 1'000'000;
  EXPECT_EQ(Ask().rounds_per_s, 0);
}

TEST_F(Rounds, ARestartOfTheSchedulerIsNoRush) {
  for (int i = 0; i < 20; ++i) Ask();
  now_ms += 10'000;  // it is away, and training goes on
  const uint64_t before = 20 * 6;
  EXPECT_EQ(AskNewScheduler().rounds, before);
  EXPECT_NEAR(AskNewScheduler().rounds_per_s, 6, 0.1) << "nothing new is known";
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(Ask().rounds_per_s, 6, 0.2) << "second " << i << " after it";
  const uint64_t rounds = Ask().rounds;
  EXPECT_EQ(rounds, done());
}

TEST_F(Rounds, AServerThatIsReplacedDoesNotTakeItsCountAlong) {
  Ask();
  Ask();
  EXPECT_EQ(counts.Next({{3, 1, 5}}, now_ms += 1'000).rounds, 12u);
  EXPECT_EQ(counts.Next({{3, 4, 20}}, now_ms += 1'000).rounds, 15u);
  EXPECT_TRUE(counts.incomplete());
}

}  // namespace
}  // namespace cairn::cluster

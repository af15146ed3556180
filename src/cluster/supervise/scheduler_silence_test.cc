#include "cluster/supervise/scheduler_silence.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

TEST(SchedulerSilence, HasABoundBeforeTheJobAndDuringIt) {
  SchedulerSilence silence({.join_grace_ms = 60'000, .lost_grace_ms = 30'000});
  silence.OnHeard(1'000);
  EXPECT_FALSE(silence.WhileStarting(60'999));
  ASSERT_TRUE(silence.WhileStarting(61'000));
  EXPECT_EQ(silence.WhileStarting(61'000)->cause, "node 0's scheduler has not answered for 60 s");
  EXPECT_FALSE(silence.WhileNeeded(30'999));
  EXPECT_TRUE(silence.WhileNeeded(31'000));
}

TEST(SchedulerSilence, LastsAsLongAsTheSchedulerItselfSays) {
  SchedulerSilence silence({.lost_grace_ms = 30'000});
  silence.OnPatience(0);  // not said
  EXPECT_TRUE(silence.WhileNeeded(30'000));
  silence.OnPatience(90'000);
  EXPECT_FALSE(silence.WhileNeeded(94'999)) << "and it takes a moment to answer";
  EXPECT_TRUE(silence.WhileNeeded(95'000));
}

}  // namespace
}  // namespace cairn::cluster

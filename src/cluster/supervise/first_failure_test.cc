#include "cluster/supervise/first_failure.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

TEST(FirstFailure, IsTheEarliestTracebackOfThoseTogether) {
  EXPECT_EQ(FirstToFail(50'000, {{49'000, true}, {48'000, true}, {51'000, true}}), 1u);
  EXPECT_EQ(FirstToFail(50'000, {{51'000, true}}), 1u) << "none was before it";
  EXPECT_EQ(FirstToFail(50'000, {}), 0u);
}

TEST(FirstFailure, OldTracebacksAndThoseThatTheProgramSurvivedDontCount) {
  EXPECT_EQ(FirstToFail(50'000, {{39'999, true}, {49'000, false}}), 2u);
  EXPECT_EQ(FirstToFail(50'000, {{40'000, true}}), 0u);
}

TEST(FirstFailure, WithoutATracebackNothingIsBefore) {
  EXPECT_EQ(FirstToFail(0, {{49'000, true}}), 1u);
  EXPECT_EQ(FirstToFail(50'000, {{0, true}}), 1u);
}

}  // namespace
}  // namespace cairn::cluster

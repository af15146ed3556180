// How long to wait before the next try.
#include "transport/link/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace cairn {
namespace {

constexpr Backoff::Range kRange{.min_us = 1000, .max_us = 6000};

TEST(Backoff, ThePauseDoublesUpToTheLongestAndUpToHalfIsAdded) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Backoff backoff(kRange, seed);
    for (const int64_t base : {1000, 2000, 4000, 6000, 6000}) {
      const int64_t pause = backoff.Next();
      EXPECT_GE(pause, base) << seed;
      EXPECT_LE(pause, base + base / 2) << seed;
    }
  }
}

TEST(Backoff, AfterAResetItIsShortAgain) {
  Backoff backoff(kRange, 1);
  for (int i = 0; i < 5; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_LE(backoff.Next(), 1500);
  EXPECT_GE(backoff.Next(), 2000);
}

TEST(Backoff, TheShortestPauseLeavesTheNextOneAlone) {
  Backoff backoff(kRange, 1);
  backoff.Next();
  for (int i = 0; i < 5; ++i) {
    const int64_t pause = backoff.Shortest();
    EXPECT_GE(pause, 1000);
    EXPECT_LE(pause, 1500);
  }
  const int64_t next = backoff.Next();
  EXPECT_GE(next, 2000);
  EXPECT_LE(next, 3000);
}

TEST(Backoff, NotEverybodyComesBackAtOneMoment) {
  std::set<int64_t> pauses;
  for (uint64_t seed = 1; seed <= 20; ++seed) pauses.insert(Backoff(kRange, seed).Next());
  EXPECT_GT(pauses.size(), 10u);
  EXPECT_GT(*pauses.rbegin() - *pauses.begin(), 100);
}

TEST(Backoff, ALongestPauseThatIsLoweredHoldsAtOnceAndIsNotBelowTheShortest) {
  Backoff backoff(kRange, 1);
  for (int i = 0; i < 5; ++i) backoff.Next();
  backoff.set_max_us(2000);
  EXPECT_LE(backoff.Next(), 3000);
  backoff.set_max_us(1);
  EXPECT_GE(backoff.Next(), 1000);
}

TEST(Backoff, ARangeThatMakesNoSenseStillPauses) {
  Backoff backoff({.min_us = 0, .max_us = -5}, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(backoff.Next(), 1);
}

}  // namespace
}  // namespace cairn

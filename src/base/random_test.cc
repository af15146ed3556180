// Mixes and generator are part of formats: these numbers never change.
#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace cairn {
namespace {

// The published first outputs of splitmix64 from state 0, and from 1234567.
TEST(Random, IsSplitmix64) {
  Random zero(0);
  EXPECT_EQ(zero.Next(), 0xE220A8397B1DCDAFull);
  EXPECT_EQ(zero.Next(), 0x6E789E6AA1B965F4ull);
  EXPECT_EQ(zero.Next(), 0x06C45D188009454Full);
  Random other(1234567);
  EXPECT_EQ(other.Next(), 6457827717110365317ull);
  EXPECT_EQ(other.Next(), 3203168211198807973ull);
}

TEST(Random, MixOfTwoIsTheGeneratorAtThatStep) {
  Random random(42);
  for (uint64_t step = 0; step < 10; ++step) EXPECT_EQ(random.Next(), Mix64(42, step));
}

TEST(Random, SameSeedSameNumbers) {
  Random a(7), b(7), c(8);
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(a.Next(), c.Next());
}

TEST(Random, BoundsHold) {
  Random random(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(random.Below(7));
    const int64_t between = random.Between(-3, 3);
    EXPECT_GE(between, -3);
    EXPECT_LE(between, 3);
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
  EXPECT_EQ(random.Below(1), 0u);
  EXPECT_EQ(random.Between(5, 5), 5);
}

TEST(Random, ChancesAreRoughlyWhatTheySay) {
  Random random(2);
  int hits = 0;
  for (int i = 0; i < 10000; ++i) hits += random.Chance(0.25);
  EXPECT_GT(hits, 2250);
  EXPECT_LT(hits, 2750);
  EXPECT_FALSE(random.Chance(0));
  EXPECT_TRUE(random.Chance(1));
}

TEST(Mix64, IsABijectionOnASample) {
  std::set<uint64_t> images;
  for (uint64_t i = 0; i < 10000; ++i) images.insert(Mix64(i));
  EXPECT_EQ(images.size(), 10000u);
  EXPECT_EQ(Mix64(0), 0u);
}

}  // namespace
}  // namespace cairn

#include "base/call.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

namespace cairn {
namespace {

TEST(Call, CallsWhatItHolds) {
  int sum = 0;
  Call<int(int)> small = [&sum](int more) { return sum += more; };
  EXPECT_EQ(small(3), 3);
  std::array<int, 64> numbers{};
  numbers[63] = 4;
  Call<int(int)> large = [&sum, numbers](int more) { return sum += more * numbers[63]; };
  EXPECT_EQ(large(2), 11);
}

TEST(Call, IsEmptyUntilItHoldsOneAndAfterItIsMoved) {
  Call<void()> none;
  EXPECT_FALSE(none);
  EXPECT_FALSE(Call<void()>(nullptr));
  int calls = 0;
  none = [&calls] { ++calls; };
  EXPECT_TRUE(none);
  Call<void()> moved = std::move(none);
  EXPECT_FALSE(none);  // NOLINT: looked at after the move
  moved();
  EXPECT_EQ(calls, 1);
}

// Whatever is captured dies once, with the last one who holds it.
TEST(Call, WhatIsCapturedDiesOnce) {
  const auto small = std::make_shared<int>(1), large = std::make_shared<int>(2);
  {
    Call<void()> first = [small] {};
    Call<void()> second = [large, room = std::array<char, 100>{}] { (void)room; };
    EXPECT_EQ(small.use_count(), 2);
    EXPECT_EQ(large.use_count(), 2);
    std::swap(first, second);
    EXPECT_EQ(small.use_count(), 2);
    EXPECT_EQ(large.use_count(), 2);
    first = nullptr;
    EXPECT_EQ(large.use_count(), 1);
  }
  EXPECT_EQ(small.use_count(), 1);
}

TEST(Call, TakesWhatCanOnlyBeMoved) {
  Call<std::string(std::unique_ptr<int>)> call = [held =
                                                      std::make_unique<int>(7)](std::unique_ptr<int> given) {
    return std::to_string(*held + *given);
  };
  Call<std::string(std::unique_ptr<int>)> moved = std::move(call);
  EXPECT_EQ(moved(std::make_unique<int>(1)), "8");
}

}  // namespace
}  // namespace cairn

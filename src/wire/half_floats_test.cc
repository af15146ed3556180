// float16 and bfloat16 against what they are defined to be: every half comes back, and a float32
// becomes the nearest of them, found by looking at the neighbours in double.
#include "wire/half_floats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace cairn::wire {
namespace {

constexpr HalfFormat kFormats[] = {HalfFormat::kFloat16, HalfFormat::kBfloat16};
uint16_t InfinityOf(HalfFormat format) { return format == HalfFormat::kFloat16 ? 0x7C00 : 0x7F80; }

double ValueOf(HalfFormat format, uint16_t half) {
  if (half == InfinityOf(format)) {  // as if the exponents went on: where rounding up begins
    return format == HalfFormat::kFloat16 ? 65536.0 : std::ldexp(1.0, 128);
  }
  return std::bit_cast<float>(UnpackHalf(format, half));
}

// The nearest of all halves that are not negative, by search: they ascend with their bits.
uint16_t Nearest(HalfFormat format, double value) {
  uint16_t low = 0, high = InfinityOf(format);
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (ValueOf(format, middle) <= value ? low : high) = middle;
  }
  const double below = value - ValueOf(format, low), above = ValueOf(format, high) - value;
  if (below == above) return low % 2 == 0 ? low : high;
  return below < above ? low : high;
}

TEST(HalfFloats, KnownNumbers) {
  EXPECT_EQ(UnpackHalf(HalfFormat::kFloat16, 0x3C00), std::bit_cast<uint32_t>(1.0f));
  EXPECT_EQ(UnpackHalf(HalfFormat::kFloat16, 0x7BFF), std::bit_cast<uint32_t>(65504.0f));
  EXPECT_EQ(UnpackHalf(HalfFormat::kFloat16, 0x0001), std::bit_cast<uint32_t>(std::ldexp(1.0f, -24)));
  EXPECT_EQ(UnpackHalf(HalfFormat::kFloat16, 0x83FF), std::bit_cast<uint32_t>(-std::ldexp(1023.0f, -24)));
  EXPECT_EQ(PackHalf(HalfFormat::kFloat16, std::bit_cast<uint32_t>(65519.0f)), 0x7BFF);
  EXPECT_EQ(PackHalf(HalfFormat::kFloat16, std::bit_cast<uint32_t>(-65520.0f)), 0xFC00);
  EXPECT_EQ(PackHalf(HalfFormat::kBfloat16, std::bit_cast<uint32_t>(1.00390625f)), 0x3F80);  // a tie
  EXPECT_EQ(PackHalf(HalfFormat::kBfloat16, std::bit_cast<uint32_t>(1.01171875f)), 0x3F82);  // a tie
}

TEST(HalfFloats, EveryHalfComesBack) {
  for (HalfFormat format : kFormats) {
    for (uint32_t half = 0; half < 65536; ++half) {
      const uint32_t bits = UnpackHalf(format, static_cast<uint16_t>(half));
      const uint16_t again = PackHalf(format, bits);
      if (std::isnan(std::bit_cast<float>(bits))) {
        ASSERT_TRUE(std::isnan(std::bit_cast<float>(UnpackHalf(format, again)))) << half;
      } else {
        ASSERT_EQ(again, half);
      }
    }
  }
}

TEST(HalfFloats, FloatsBecomeTheNearest) {
  Random random(7);
  for (HalfFormat format : kFormats) {
    for (int i = 0; i < 200'000; ++i) {
      auto bits = static_cast<uint32_t>(random.Next());
      if (i % 4 == 0) bits &= 0xFFFFF000u;                        // ties are rare otherwise
      if (i % 4 == 1) bits = (bits & 0x83FFFFFFu) | 0x38000000u;  // around the subnormals of float16
      if (i % 8 == 2) bits = (bits & 0x80FFFFFFu) | 0x47000000u;  // and around its largest
      const float value = std::bit_cast<float>(bits);
      if (!std::isfinite(value)) continue;
      const uint16_t half = PackHalf(format, bits);
      ASSERT_EQ(half & 0x7FFF, Nearest(format, std::abs(static_cast<double>(value)))) << value;
      ASSERT_EQ(half >> 15, bits >> 31);
    }
  }
}

TEST(HalfFloats, PackingSaysWhetherAnythingIsLost) {
  for (HalfFormat format : kFormats) {
    std::vector<float> values(1000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 128) * 0.25f;
    values[999] = -0.0f;
    std::vector<std::byte> halves(2 * values.size());
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    EXPECT_TRUE(PackHalves(format, bytes, values.size(), halves.data()));
    std::vector<float> back(values.size());
    UnpackHalves(format, halves.data(), back.size(), reinterpret_cast<std::byte*>(back.data()));
    EXPECT_EQ(std::memcmp(back.data(), values.data(), 4 * values.size()), 0);
    values[500] = 0.1f;
    EXPECT_FALSE(PackHalves(format, bytes, values.size(), halves.data()));
  }
}

TEST(HalfFloats, RoundingIsDoneOnceAndSaysWhatIsTooLarge) {
  for (HalfFormat format : kFormats) {
    std::vector<float> values = {0.1f, -1e-9f, 3.0f, std::numeric_limits<float>::max()};
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    EXPECT_TRUE(RoundToHalf(format, TooLarge::kLargest, bytes, values.size()));
    EXPECT_TRUE(std::isfinite(values[3]));
    const std::vector<float> once = values;
    EXPECT_TRUE(RoundToHalf(format, TooLarge::kInfinite, bytes, values.size()));
    EXPECT_EQ(std::memcmp(once.data(), values.data(), 16), 0);
    std::vector<std::byte> halves(8);
    EXPECT_TRUE(PackHalves(format, bytes, values.size(), halves.data()));

    values[3] = -std::numeric_limits<float>::max();
    EXPECT_FALSE(RoundToHalf(format, TooLarge::kInfinite, bytes, values.size()));
    EXPECT_EQ(values[3], -std::numeric_limits<float>::infinity());
    values[3] = std::numeric_limits<float>::quiet_NaN();  // it was NaN before: nobody's range is too small
    EXPECT_FALSE(RoundToHalf(format, TooLarge::kLargest, bytes, values.size()));
    EXPECT_TRUE(std::isnan(values[3]));
  }
}

}  // namespace
}  // namespace cairn::wire

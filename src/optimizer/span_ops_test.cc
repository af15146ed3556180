// The vector loops against a scalar reference, bit for bit, at every length around the vector
// widths and at unaligned starts; and the arithmetic itself on small cases.
#include "optimizer/span_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "optimizer/update.h"

namespace cairn::optimizer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- the reference: one element at a time, written as the documentation says it ----
float Canon(float value) { return std::isnan(value) ? std::bit_cast<float>(0x7FC00000u) : value; }
// Ordinary values, and now and then a special one.
float AnyFloat(Random& random) {
  switch (random.Below(24)) {
    case 0: return kInf;
    case 1: return -kInf;
    case 2: return std::bit_cast<float>(0x7FC12345u);
    case 3: return std::bit_cast<float>(0xFFC00000u);
    case 4: return -0.0f;
    case 5: return 1e-42f;
    case 6: return std::numeric_limits<float>::max();
    default: return static_cast<float>(random.Between(-1'000'000, 1'000'000)) * 1.37e-4f;
  }
}
std::vector<float> Floats(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = AnyFloat(random);
  return v;
}
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " at " << i << " of " << a.size() << ": " << a[i] << " and " << b[i];
  }
}

const size_t kLengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 100, 1023, 4099};

TEST(SpanOps, ReplacingTakesTheScaledMean) {
  for (size_t n : kLengths) {
    const std::vector<float> g = Floats(n, n + 1000);
    std::vector<float> same = Floats(n, n), scaled = same, expected(n), mean(n);
    ReplaceSpan(same, g, {});
    ReplaceSpan(scaled, g, {3.5f, -0.7f});
    for (size_t i = 0; i < n; ++i) {
      expected[i] = Canon(g[i]);
      const float part = g[i] / 3.5f;
      mean[i] = Canon(part * -0.7f);
    }
    ExpectSameBits(same, expected, "replaced");
    ExpectSameBits(scaled, mean, "mean");
  }
}

TEST(SpanOps, SquaresAreAddedOneByOneInDouble) {
  Random random(8);
  std::vector<float> g(1000);
  for (float& x : g) x = static_cast<float>(random.Between(-1'000'000, 1'000'000)) * 1.37e-2f;
  double expected = 7.5;
  for (float x : g) {
    const float mean = x / 3.0f;
    expected += static_cast<double>(mean) * static_cast<double>(mean);
  }
  EXPECT_EQ(AddSquares(7.5, g, 3.0f), expected);
  EXPECT_TRUE(std::isfinite(AddSquares(0, std::vector<float>(4, std::numeric_limits<float>::max()), 1.0f)));
  for (float bad : {kInf, -kInf, kNan}) {
    g[500] = bad;
    EXPECT_FALSE(std::isfinite(AddSquares(0, g, 3.0f)));
  }
}

TEST(SpanOps, TheFirstOneWins) {
  std::vector<uint64_t> w = {0, 5, 0, 7, 0};
  FirstSpan(w, std::vector<uint64_t>{1, 2, 3, 4, 0});
  EXPECT_EQ(w, (std::vector<uint64_t>{1, 5, 3, 7, 0}));
}

TEST(SpanOps, StagingAgreesWithTheScalarReference) {
  for (size_t n : kLengths) {
    for (float weight : {1.0f, 0.25f, 3.3f, 0.0f}) {
      const std::vector<float> w = Floats(n, n + 5), g = Floats(n, n + 6);
      std::vector<float> fast = w, slow = w;
      StageCopySpan(fast, g, weight);
      for (size_t i = 0; i < n; ++i) slow[i] = weight == 1.0f ? g[i] : weight * g[i];
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(std::isnan(fast[i]), std::isnan(slow[i]));
      StageAddSpan(fast, w, weight);
      for (size_t i = 0; i < n; ++i) slow[i] = weight == 1.0f ? slow[i] + w[i] : slow[i] + weight * w[i];
      // Which NaN a staged sum is does not matter: the apply makes it canonical.
      for (float& x : fast) x = Canon(x);
      for (float& x : slow) x = Canon(x);
      ExpectSameBits(fast, slow, "staging");
    }
  }
}

TEST(SpanOps, AWeightOfOneIsExact) {
  const std::vector<float> g = Floats(257, 3);
  std::vector<float> staged(257, 1.0f);
  StageCopySpan(staged, g, 1.0f);
  EXPECT_EQ(0, std::memcmp(staged.data(), g.data(), g.size() * sizeof(float)));
}

TEST(SpanOps, Int64WrapsAround) {
  for (size_t n : kLengths) {
    Random random(n);
    std::vector<uint64_t> w(n), g(n), expected(n);
    for (size_t i = 0; i < n; ++i) {
      w[i] = random.Next();
      g[i] = random.Next();
      expected[i] = w[i] + g[i];
    }
    SumSpan(std::span(w), g);
    EXPECT_EQ(w, expected);
  }
  std::vector<uint64_t> w = {static_cast<uint64_t>(std::numeric_limits<int64_t>::max())};
  SumSpan(std::span(w), std::vector<uint64_t>{1});
  EXPECT_EQ(static_cast<int64_t>(w[0]), std::numeric_limits<int64_t>::min());
}

TEST(SpanOps, EveryNanIsTheCanonicalOne) {
  std::vector<float> w = {kInf, std::bit_cast<float>(0xFFFFFFFFu), 1, 1, 1, 1, kInf};
  const std::vector<float> g = {-kInf, 1, 1, kNan, 1, 1, -kInf};
  UpdateSpan(StepNumbers(OptimizerKind::kSum, 0, {}, 1), {}, w, g, nullptr);
  for (size_t i : {0, 1, 3, 6}) EXPECT_EQ(std::bit_cast<uint32_t>(w[i]), 0x7FC00000u) << i;
}

TEST(SpanOps, AllFiniteFindsASingleBadValueAnywhere) {
  EXPECT_TRUE(AllFinite({}));
  for (size_t n : kLengths) {
    std::vector<float> v(n, std::numeric_limits<float>::max());
    if (n > 1) v[1] = -0.0f;
    if (n > 2) v[2] = 1e-45f;
    ASSERT_TRUE(AllFinite(v)) << n;
    for (size_t i = 0; i < n; i += n > 200 ? 37 : 1) {
      for (float bad : {kNan, -kNan, kInf, -kInf, std::bit_cast<float>(0x7F800001u)}) {
        const float kept = v[i];
        v[i] = bad;
        ASSERT_FALSE(AllFinite(v)) << bad << " at " << i << " of " << n;
        v[i] = kept;
      }
    }
  }
}

}  // namespace
}  // namespace cairn::optimizer

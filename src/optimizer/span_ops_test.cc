// The vector loops against a scalar reference, bit for bit, at every length around the vector
// widths and at unaligned starts; and the arithmetic itself on small cases.
#include "optimizer/span_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/random.h"

namespace cairn::optimizer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- the reference: one element at a time, written as the documentation says it ----
float Canon(float value) { return std::isnan(value) ? std::bit_cast<float>(0x7FC00000u) : value; }
float ReferenceSum(float w, float g) { return Canon(w + g); }
float ReferenceSgd(float w, float g, const Hyper& h) {
  const float decay = h.weight_decay * w;
  const float step = g + decay;
  const float scaled = h.lr * step;
  return Canon(w - scaled);
}
float ReferenceSgdOfMean(float w, float sum, const Hyper& h, float divisor) {
  const float mean = sum / divisor;
  return ReferenceSgd(w, mean, h);
}

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
const Hyper kHyper{.lr = 0.013f, .weight_decay = 0.07f};

TEST(SpanOps, FloatLoopsAgreeWithTheScalarReference) {
  for (size_t n : kLengths) {
    for (size_t offset : {0, 1, 3}) {
      const std::vector<float> w = Floats(n + offset, n + 1), g = Floats(n + offset, n + 1000);
      const auto gs = std::span(g).subspan(offset);
      struct Case {
        const char* name;
        std::function<void(std::span<float>)> fast;
        std::function<float(float, float)> slow;
      };
      const Case cases[] = {
          {"sum", [&](auto s) { SumSpan(s, gs); }, ReferenceSum},
          {"sgd", [&](auto s) { SgdSpan(s, gs, kHyper); },
           [](float a, float b) { return ReferenceSgd(a, b, kHyper); }},
          {"mean", [&](auto s) { SgdOfMeanSpan(s, gs, kHyper, 3.5f); },
           [](float a, float b) { return ReferenceSgdOfMean(a, b, kHyper, 3.5f); }},
      };
      for (const Case& c : cases) {
        std::vector<float> fast = w, slow = w;
        c.fast(std::span(fast).subspan(offset));
        for (size_t i = offset; i < slow.size(); ++i) slow[i] = c.slow(slow[i], g[i]);
        ExpectSameBits(fast, slow, c.name);
      }
    }
  }
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

TEST(SpanOps, SgdOnNumbersThatCanBeCheckedByHand) {
  std::vector<float> w = {1.0f, 2.0f, -4.0f};
  SgdSpan(w, std::vector<float>{2.0f, 0.0f, 4.0f}, {.lr = 0.5f, .weight_decay = 0.25f});
  EXPECT_EQ(w, (std::vector<float>{1.0f - 0.5f * 2.25f, 2.0f - 0.25f, -4.0f - 0.5f * 3.0f}));
  w = {1.0f};
  SgdOfMeanSpan(w, std::vector<float>{6.0f}, {.lr = 0.5f, .weight_decay = 0.0f}, 4.0f);
  EXPECT_EQ(w[0], 1.0f - 0.75f);
}

TEST(SpanOps, EveryNanIsTheCanonicalOne) {
  std::vector<float> w = {kInf, std::bit_cast<float>(0xFFFFFFFFu), 1, 1, 1, 1, kInf};
  SumSpan(w, std::vector<float>{-kInf, 1, 1, kNan, 1, 1, -kInf});
  for (size_t i : {0, 1, 3, 6}) EXPECT_EQ(std::bit_cast<uint32_t>(w[i]), 0x7FC00000u) << i;
}

TEST(SpanOps, AllFiniteFindsASingleBadValueAnywhere) {
  EXPECT_TRUE(AllFinite({}));
  for (size_t n : kLengths) {
    std::vector<float> v(n, std::numeric_limits<float>::max());
    if (n > 1) v[1] = -0.0f;
    if (n > 2) v[2] = 1e-45f;
    ASSERT_TRUE(AllFinite(v)) << n;
    for (size_t i = 0; i<n; i += n> 200 ? 37 : 1) {
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

// Which instruction sets are found, and the loops of span_ops.h on each of them against plain
// loops, bit for bit. update_test.cc does the same for the optimizers.
#include "optimizer/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"

namespace cairn::optimizer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
const size_t kLengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 100, 1023, 4099};

// Ordinary numbers, and now and then a special one.
std::vector<float> Floats(size_t n, uint64_t seed) {
  const float special[] = {kInf,
                           -kInf,
                           -0.0f,
                           1e-42f,
                           std::bit_cast<float>(0x7FC12345u),
                           3e-39f,
                           kMax,
                           std::bit_cast<float>(0xFFC00000u)};
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) {
    x = static_cast<float>(random.Between(-1'000'000, 1'000'000)) * 1.37e-4f;
    if (const uint64_t i = random.Below(24); i < std::size(special)) x = special[i];
  }
  return v;
}
float Canonical(float x) { return std::isnan(x) ? std::bit_cast<float>(kCanonicalNan) : x; }
// Which NaN a sum of two is, and so what staging holds, depends on the machine: applying it makes
// it the canonical one.
std::vector<float> Canonical(std::vector<float> v) {
  for (float& x : v) x = Canonical(x);
  return v;
}
void ExpectSameBits(const std::vector<float>& fast, const std::vector<float>& slow) {
  ASSERT_EQ(fast.size(), slow.size());
  for (size_t i = 0; i < fast.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(fast[i]), std::bit_cast<uint32_t>(slow[i]))
        << "at " << i << " of " << fast.size() << ": " << fast[i] << " and " << slow[i];
  }
}

TEST(Kernels, WhatTheMachineHasIsFoundAndTheBestIsChosen) {
  std::vector<std::string> names;
  for (const Kernels* kernels : SupportedKernels()) names.push_back(kernels->name);
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(ChosenKernels().name, names[0]);
#if defined(__x86_64__) && !defined(__SSSE3__)  // compiled for any x86-64, as it should be
  EXPECT_TRUE(names.back() == "SCALAR" || names.back() == "EMU128") << names.back();
  const auto found = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  EXPECT_EQ(found("SSE4"), __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(found("AVX2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(found("AVX3"), __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
#endif
}

class KernelsOf : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Target, KernelsOf,
                         testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& tested) { return std::string(tested.param->name); });

TEST_P(KernelsOf, ReplaceTakesTheScaledMean) {
  for (size_t n : kLengths) {
    const std::vector<float> g = Floats(n + 1, n + 1000);
    for (const OfMean& gradient : {OfMean{}, OfMean{3.5f, -0.7f}, OfMean{1.0f, -1.0f}}) {
      std::vector<float> fast(n + 1, 5.0f), slow = fast;
      kernels().replace(fast.data() + 1, g.data() + 1, n, gradient);
      for (size_t i = 1; i <= n; ++i) {
        const float mean = g[i] / gradient.divisor;
        slow[i] = Canonical(mean * gradient.factor);
      }
      ExpectSameBits(fast, slow);
    }
  }
}

TEST_P(KernelsOf, StagingCopiesAndAdds) {
  for (size_t n : kLengths) {
    for (float weight : {1.0f, 0.25f, 3.3f, 0.0f}) {
      const std::vector<float> g = Floats(n + 1, n + 6), more = Floats(n + 1, n + 7);
      std::vector<float> fast(n + 1, 5.0f), slow = fast;
      kernels().stage_copy(fast.data() + 1, g.data() + 1, n, weight);
      for (size_t i = 1; i <= n; ++i) slow[i] = weight == 1.0f ? g[i] : weight * g[i];
      if (weight == 1.0f) {
        ASSERT_EQ(0, std::memcmp(fast.data() + 1, g.data() + 1, n * sizeof(float)));
      }
      ExpectSameBits(Canonical(fast), Canonical(slow));
      kernels().stage_add(fast.data() + 1, more.data() + 1, n, weight);
      for (size_t i = 1; i <= n; ++i) {
        const float added = weight == 1.0f ? more[i] : weight * more[i];
        slow[i] = slow[i] + added;
      }
      ExpectSameBits(Canonical(fast), Canonical(slow));
    }
  }
}

TEST_P(KernelsOf, RowsAreStagedOneAfterTheOther) {
  for (size_t dim : {1, 3, 4, 8, 9, 16, 17, 32, 64, 65}) {
    for (float weight : {1.0f, 0.3f}) {
      std::vector<float> fast = Floats(3 * (dim + 1), dim), slow = fast;
      const std::vector<float> g = Floats(4 * dim, dim + 1);
      const size_t order[] = {0, 2, 2, 1};  // a row may come twice
      float* staged[4];
      const float* given[4];
      for (size_t r = 0; r < 4; ++r) {
        staged[r] = fast.data() + order[r] * (dim + 1);
        given[r] = g.data() + r * dim;
        for (size_t i = 0; i < dim; ++i) {
          const float added = weight == 1.0f ? given[r][i] : weight * given[r][i];
          slow[order[r] * (dim + 1) + i] += added;
        }
      }
      kernels().stage_add_rows(staged, given, 4, dim, weight);
      ExpectSameBits(Canonical(fast), Canonical(slow));
    }
  }
}

TEST_P(KernelsOf, IntegersWrapAround) {
  for (size_t n : kLengths) {
    Random random(n);
    std::vector<uint64_t> w(n + 1), g(n + 1), expected(n + 1);
    for (size_t i = 0; i <= n; ++i) {
      w[i] = random.Next();
      g[i] = random.Next();
      expected[i] = i == 0 ? w[i] : w[i] + g[i];
    }
    kernels().sum_integers(w.data() + 1, g.data() + 1, n);
    EXPECT_EQ(w, expected);
  }
}

TEST_P(KernelsOf, ASingleBadValueIsFoundAnywhere) {
  const float bound = std::bit_cast<float>(0x7F800000u);  // infinity: all that is finite is below
  EXPECT_TRUE(kernels().all_below(nullptr, 0, bound));
  for (size_t n : kLengths) {
    std::vector<float> v(n, kMax);
    for (size_t i = 0; i < n; i += 3) v[i] = i % 2 == 0 ? -kMax : 1e-45f;
    ASSERT_TRUE(kernels().all_below(v.data(), n, bound)) << n;
    for (size_t i = 0; i < n; i += n > 200 ? 37 : 1) {
      for (uint32_t bad : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
        const float kept = v[i];
        v[i] = std::bit_cast<float>(bad);
        ASSERT_FALSE(kernels().all_below(v.data(), n, bound))
            << std::hex << bad << " at " << i << " of " << n;
        v[i] = kept;
      }
    }
  }
}

TEST_P(KernelsOf, ABoundIsNotBelowItself) {
  for (size_t n : kLengths) {
    std::vector<float> v(n, std::nextafter(1e20f, 0.0f));
    ASSERT_TRUE(kernels().all_below(v.data(), n, 1e20f)) << n;
    for (size_t i = 0; i < n; i += n > 200 ? 37 : 1) {
      for (float bad : {1e20f, -1e20f, kMax, std::bit_cast<float>(0xFFFFFFFFu)}) {
        const float kept = std::exchange(v[i], bad);
        ASSERT_FALSE(kernels().all_below(v.data(), n, 1e20f)) << bad << " at " << i << " of " << n;
        v[i] = kept;
      }
    }
  }
}

}  // namespace
}  // namespace cairn::optimizer

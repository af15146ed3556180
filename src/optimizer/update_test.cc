// The vector loops of the optimizers against the slow reference, bit for bit, on every instruction
// set that this machine has: every kind and set of flags, as arrays and as rows, at every length
// around the vector widths, at unaligned starts, with NaN, infinity and denormal numbers among them.
#include "optimizer/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "optimizer/update_reference.h"

namespace cairn::optimizer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> Numbers(size_t n, uint64_t seed, bool special) {
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) {
    x = static_cast<float>(random.Between(-1'000'000, 1'000'000)) * 1.37e-6f;
    if (!special) continue;
    switch (random.Below(24)) {
      case 0: x = kInf; break;
      case 1: x = -kInf; break;
      case 2: x = std::bit_cast<float>(0x7FC12345u); break;
      case 3: x = -0.0f; break;
      case 4: x = 1e-42f; break;
      case 5: x = std::numeric_limits<float>::max(); break;
      case 6: x = 3e-21f; break;  // its square is denormal
      case 7: x = std::numeric_limits<float>::min(); break;
      default: break;
    }
  }
  return v;
}

void ExpectSame(float fast, float slow, const char* what, size_t i) {
  ASSERT_EQ(std::bit_cast<uint32_t>(fast), std::bit_cast<uint32_t>(slow))
      << what << " " << i << ": " << fast << ", the reference has " << slow;
}

class OnEveryTarget : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Update, OnEveryTarget,
                         testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& tested) { return std::string(tested.param->name); });

// Five steps of both, from equal beginnings.
void Compare(const Kernels& kernels, const ReferenceCase& c, size_t n, size_t offset, double divisor,
             double scale, bool special) {
  SCOPED_TRACE(testing::Message() << c.name << ", flags " << c.flags << ", " << n << " elements at " << offset
                                  << ", divisor " << divisor << ", scale " << scale);
  std::vector<float> w = Numbers(n + offset, n + 1, special);
  std::vector<ReferenceElement> slow(n);
  std::vector<std::vector<float>> columns(StateColumns(c.kind, c.flags), std::vector<float>(n + offset));
  float* state[kMaxStateColumns] = {};
  for (size_t k = 0; k < columns.size(); ++k) state[k] = columns[k].data() + offset;
  for (size_t i = 0; i < n; ++i) slow[i].w = w[offset + i];
  for (uint64_t step = 1; step <= 5; ++step) {
    const std::vector<float> g = Numbers(n + offset, 1000 * step + n, special && step == 3);
    const OfMean gradient = GradientOf(c.flags, static_cast<float>(divisor), scale);
    kernels.update(StepNumbers(c.kind, c.flags, c.hyper, step), gradient, w.data() + offset,
                   g.data() + offset, state, n);
    for (size_t i = 0; i < n; ++i) {
      const float seen = ReferenceGradient(g[offset + i], divisor, scale);
      ReferenceUpdate(c.kind, c.flags, c.hyper, step, seen, slow[i]);
      ExpectSame(w[offset + i], slow[i].w, "value", i);
      for (size_t k = 0; k < columns.size(); ++k)
        ExpectSame(columns[k][offset + i], slow[i].state[k], "state", i);
    }
  }
}

TEST_P(OnEveryTarget, EveryOptimizerAgreesWithTheReference) {
  for (const ReferenceCase& c : ReferenceCases()) {
    for (size_t n : {0, 1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 64, 1023}) {
      for (size_t offset : {0, 1, 3}) {
        Compare(kernels(), c, n, offset, 1, 1, false);
        Compare(kernels(), c, n, offset, 3.5, 0.37, false);
      }
    }
    Compare(kernels(), c, 501, 0, 1, 1, true);
    Compare(kernels(), c, 501, 1, 2, 1, true);
    Compare(kernels(), c, 501, 1, 1, 0.1, true);
  }
}

// Rows with their state behind their values, with a gap that leaves them unaligned; the third one
// comes twice in a batch, as when a push names a key twice.
struct TestRows {
  static constexpr size_t kRows = 7;
  TestRows(size_t row_dim, size_t row_floats, bool special)
      : dim(row_dim), stride(row_floats + 1), floats(kRows * stride, -7.0f) {
    for (size_t r = 0; r < kRows; ++r) {
      rows.push_back(floats.data() + r * stride);
      std::ranges::copy(Numbers(dim, r + 1, special), rows[r]);
      std::fill_n(rows[r] + dim, row_floats - dim, 0.25f);
    }
    rows.push_back(rows[2]);
  }
  void Push(uint64_t seed, bool special) {
    pushed = Numbers(rows.size() * dim, seed, special);
    gradients.clear();
    for (size_t r = 0; r < rows.size(); ++r) gradients.push_back(pushed.data() + r * dim);
  }
  void ExpectGapsAreAsTheyWere() const {
    for (size_t r = 0; r < kRows; ++r) ASSERT_EQ(floats[(r + 1) * stride - 1], -7.0f) << "after row " << r;
  }
  size_t dim, stride;
  std::vector<float> floats, pushed;
  std::vector<float*> rows;
  std::vector<const float*> gradients;
};

void CompareRows(const Kernels& kernels, const ReferenceCase& c, size_t dim, bool special) {
  SCOPED_TRACE(testing::Message() << c.name << ", flags " << c.flags << ", rows of " << dim);
  const size_t columns = StateColumns(c.kind, c.flags);
  TestRows t(dim, dim * (1 + columns), special);
  const double divisor = special ? 1 : 3.5, scale = special ? 1 : 0.37;
  for (uint64_t step = 1; step <= 3; ++step) {
    t.Push(100 * step + dim, special && step == 2);
    const std::vector<float> before = t.floats;
    RowStep work(StepNumbers(c.kind, c.flags, c.hyper, step),
                 GradientOf(c.flags, static_cast<float>(divisor), scale), dim);
    work.work = kernels.update_rows;
    work(t.rows.data(), t.gradients.data(), t.rows.size());
    std::vector<float> expected = before;
    for (size_t r = 0; r < t.rows.size(); ++r) {
      float* slow = expected.data() + (t.rows[r] - t.floats.data());
      for (size_t i = 0; i < dim; ++i) {
        ReferenceElement e{.w = slow[i]};
        for (size_t k = 0; k < columns; ++k) e.state[k] = slow[(k + 1) * dim + i];
        const float seen = ReferenceGradient(t.gradients[r][i], divisor, scale);
        ReferenceUpdate(c.kind, c.flags, c.hyper, step, seen, e);
        slow[i] = e.w;
        for (size_t k = 0; k < columns; ++k) slow[(k + 1) * dim + i] = e.state[k];
      }
    }
    for (size_t i = 0; i < expected.size(); ++i) ExpectSame(t.floats[i], expected[i], "number", i);
    t.ExpectGapsAreAsTheyWere();
  }
}

TEST_P(OnEveryTarget, RowsAgreeWithTheReference) {
  for (const ReferenceCase& c : ReferenceCases()) {
    for (size_t dim : {1, 2, 3, 4, 7, 8, 12, 16, 17, 31, 32, 33, 64, 65}) {
      for (bool special : {false, true}) CompareRows(kernels(), c, dim, special);
    }
  }
}

TEST_P(OnEveryTarget, RowwiseAdagradAgreesWithTheReference) {
  for (size_t dim : {1, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 64, 100}) {
    for (uint32_t flags : {0u, uint32_t{kMaximize}}) {
      for (bool special : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rows of " << dim << ", flags " << flags);
        const Hyper hyper{.lr = 0.1, .eps = 1e-8};
        TestRows t(dim, dim + 1, special);
        for (uint64_t step = 1; step <= 5; ++step) {
          t.Push(100 * step + dim, special && step == 4);
          const double divisor = step % 2 == 0 ? 3.5 : 1, scale = step % 3 == 0 ? 0.3 : 1;
          std::vector<float> expected = t.floats;
          RowStep work(StepNumbers(OptimizerKind::kRowwiseAdagrad, flags, hyper, step),
                       GradientOf(flags, static_cast<float>(divisor), scale), dim);
          work.work = kernels().update_rows;
          work(t.rows.data(), t.gradients.data(), t.rows.size());
          for (size_t r = 0; r < t.rows.size(); ++r) {
            float* slow = expected.data() + (t.rows[r] - t.floats.data());
            std::vector<float> seen, w(slow, slow + dim);
            for (size_t i = 0; i < dim; ++i)
              seen.push_back(ReferenceGradient(t.gradients[r][i], divisor, scale));
            ReferenceRowwiseAdagrad(flags, hyper, seen, w, slow[dim]);
            std::ranges::copy(w, slow);
          }
          for (size_t i = 0; i < expected.size(); ++i) ExpectSame(t.floats[i], expected[i], "number", i);
          t.ExpectGapsAreAsTheyWere();
        }
      }
    }
  }
}

TEST(Update, FtrlOnNumbersThatCanBeCheckedByHand) {
  // alpha 0.5, beta 1, l1 1, l2 0.5; n = 9 at the start.
  const Hyper hyper{.lr = 0.5, .weight_decay = 0.5, .beta1 = 1, .beta2 = 1};
  std::vector<float> w = {2.0f, 2.0f, 0.0f}, z = {0.0f, 0.0f, -0.5f}, n = {9.0f, 9.0f, 0.0f};
  float* state[] = {z.data(), n.data()};
  UpdateSpan(StepNumbers(OptimizerKind::kFtrl, 0, hyper, 1), {}, w, std::vector<float>{4.0f, -4.0f, 0.0f},
             state);
  // sigma = (5 - 3) / 0.5 = 4, so z = 4 - 8 and -4 - 8; the strength is (1 + 5) / 0.5 + 0.5.
  EXPECT_EQ(z, (std::vector<float>{-4.0f, -12.0f, -0.5f}));
  EXPECT_EQ(n, (std::vector<float>{25.0f, 25.0f, 0.0f}));
  EXPECT_EQ(w, (std::vector<float>{3.0f / 12.5f, 11.0f / 12.5f, 0.0f}));
}

TEST(Update, OnlyAccumulatorsStartWithTheInitialState) {
  EXPECT_EQ(InitialState(OptimizerKind::kAdagrad, 0, 0.5f), 0.5f);
  EXPECT_EQ(InitialState(OptimizerKind::kRowwiseAdagrad, 0, 0.5f), 0.5f);
  EXPECT_EQ(InitialState(OptimizerKind::kFtrl, 0, 0.5f), 0.0f);
  EXPECT_EQ(InitialState(OptimizerKind::kFtrl, 1, 0.5f), 0.5f);
}

// A test of the comparison above: cases that it can't tell apart would hide a forgotten flag.
TEST(Update, TheCasesDifferFromOneAnother) {
  std::vector<float> results;
  for (const ReferenceCase& c : ReferenceCases()) {
    ReferenceElement e{.w = 0.75f};
    for (uint64_t step = 1; step <= 4; ++step)
      ReferenceUpdate(c.kind, c.flags, c.hyper, step, step == 2 ? -1.5f : 0.3f, e);
    for (float other : results) EXPECT_NE(e.w, other) << c.name << " " << c.flags;
    results.push_back(e.w);
  }
}

TEST(Update, SgdOnNumbersThatCanBeCheckedByHand) {
  std::vector<float> w = {1.0f, 2.0f, -4.0f};
  const StepNumbers decayed(OptimizerKind::kSgd, 0, {.lr = 0.5, .weight_decay = 0.25}, 1);
  UpdateSpan(decayed, {}, w, std::vector<float>{2.0f, 0.0f, 4.0f}, nullptr);
  EXPECT_EQ(w, (std::vector<float>{1.0f - 0.5f * 2.25f, 2.0f - 0.25f, -4.0f - 0.5f * 3.0f}));
  w = {1.0f};
  const StepNumbers plain(OptimizerKind::kSgd, 0, {.lr = 0.5}, 1);
  UpdateSpan(plain, {4.0f, 1.0f}, w, std::vector<float>{6.0f}, nullptr);
  EXPECT_EQ(w[0], 1.0f - 0.75f);
}

TEST(Update, WithoutWeightDecayAnInfiniteValueStaysWhatItIs) {
  for (const ReferenceCase& c : ReferenceCases()) {
    if (c.kind == OptimizerKind::kMean || c.kind == OptimizerKind::kFtrl) continue;
    Hyper hyper = c.hyper;
    hyper.weight_decay = 0;
    std::vector<float> w(5, kInf), columns[3] = {w, w, w};
    float* state[kMaxStateColumns] = {};
    for (size_t k = 0; k < 3; ++k) {
      columns[k].assign(5, 0.0f);
      state[k] = columns[k].data();
    }
    UpdateSpan(StepNumbers(c.kind, c.flags, hyper, 1), {}, w, std::vector<float>(5, 0.5f), state);
    for (float x : w) EXPECT_EQ(x, kInf) << c.name;
  }
}

TEST(Update, PowersAreThoseOfRepeatedMultiplication) {
  for (double base : {0.0, 0.5, 0.9, 0.999, 1.0}) {
    double product = 1.0;
    for (uint64_t n = 0; n < 3000; ++n) {
      ASSERT_NEAR(Power(base, n), product, 1e-12 * product) << base << "^" << n;
      product *= base;
    }
  }
  EXPECT_EQ(Power(0.5, 10), 0x1p-10);
  EXPECT_EQ(Power(0.999, uint64_t{1} << 40), 0.0);
  EXPECT_EQ(Power(0.999, 12345), ReferencePower(0.999, 12345));
}

TEST(Update, StateColumnsAreThoseOfTorchsStateDict) {
  using enum OptimizerKind;
  for (OptimizerKind kind : {kSum, kMean, kFirst, kSgd}) EXPECT_EQ(StateColumns(kind, kMaximize), 0u);
  EXPECT_EQ(StateColumns(kSgd, kWithMomentum | kNesterov), 1u);
  EXPECT_EQ(StateColumns(kAdagrad, 0), 1u);
  EXPECT_EQ(StateColumns(kAdam, 0), 2u);
  EXPECT_EQ(StateColumns(kAdamW, kAmsgrad), 3u);
  EXPECT_EQ(StateColumns(kRmsprop, 0), 1u);
  EXPECT_EQ(StateColumns(kSparseAdam, kMaximize), 2u);
  EXPECT_EQ(StateColumns(kRowwiseAdagrad, 0), 1u);
  EXPECT_EQ(StateColumns(kFtrl, 0), 2u);
  EXPECT_EQ(StateColumns(kRmsprop, kCentered), 2u);
  EXPECT_EQ(StateColumns(kRmsprop, kCentered | kWithMomentum), 3u);
}

// As torch has it: SGD takes any momentum but 0, RMSprop one above it.
TEST(Update, AMomentumBelowZeroIsSgdsAlone) {
  const Hyper hyper{.lr = 0.1, .beta1 = -0.5};
  EXPECT_TRUE(StepNumbers(OptimizerKind::kSgd, kWithMomentum, hyper, 1).has_momentum);
  EXPECT_FALSE(StepNumbers(OptimizerKind::kRmsprop, kWithMomentum, hyper, 1).has_momentum);
  EXPECT_FALSE(StepNumbers(OptimizerKind::kSgd, 0, hyper, 1).has_momentum) << "the table keeps no buffer";
}

}  // namespace
}  // namespace cairn::optimizer

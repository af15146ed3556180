// bfloat16 and float16: what rounding to the nearest and at random means, on single numbers, and the
// vector loops of every instruction set against it, bit for bit.
#include "optimizer/narrow.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "optimizer/update.h"
#include "optimizer/update_reference.h"

namespace cairn::optimizer {
namespace {

constexpr Storage kBoth[] = {Storage::kBfloat16, Storage::kFloat16};
constexpr float kInf = std::numeric_limits<float>::infinity();

float Bits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint16_t InfinityOf(Storage storage) { return storage == Storage::kBfloat16 ? 0x7F80 : 0x7C00; }

// Numbers whose rounding is hard: any bits, stored numbers and what is around them and between them.
std::vector<float> HardNumbers(Storage storage, size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers = {0.0f,
                                -0.0f,
                                kInf,
                                -kInf,
                                Bits(0x7FC12345),
                                Bits(0xFF800001),
                                65504.0f,
                                65505.0f,
                                65520.0f,
                                65536.0f,
                                std::numeric_limits<float>::max(),
                                0x1p-14f,
                                0x1p-24f,
                                0x1p-25f,
                                -0x1p-25f,
                                0x1p-60f,
                                1e-42f,
                                Bits(0x33000001)};
  while (numbers.size() < count) {
    const auto any = Bits(static_cast<uint32_t>(random.Next()));
    const float stored = Widened(storage, static_cast<uint16_t>(random.Next()));
    const uint32_t near = std::bit_cast<uint32_t>(stored) + static_cast<uint32_t>(random.Below(5)) - 2;
    const float small = static_cast<float>(random.Between(-2'000'000, 2'000'000)) * 0x1p-44f;
    const float plain = static_cast<float>(random.Between(-1'000'000, 1'000'000)) * 1.37e-6f;
    const uint32_t middle =
        std::bit_cast<uint32_t>(stored) | (storage == Storage::kBfloat16 ? 0x8000u : 0x1000u);
    for (const float x : {any, Bits(near), small, plain, Bits(middle), Bits(middle + 1)})
      numbers.push_back(x);
  }
  return numbers;
}

TEST(Narrow, EveryStoredNumberIsItsOwnNearestAndIsNeverMovedByChance) {
  for (const Storage storage : kBoth) {
    for (uint32_t stored = 0; stored < 0x10000; ++stored) {
      const float wide = Widened(storage, static_cast<uint16_t>(stored));
      const bool nan = (stored & 0x7FFF) > InfinityOf(storage);
      ASSERT_EQ(std::isnan(wide), nan) << stored;
      const uint32_t wanted = !nan ? stored : storage == Storage::kBfloat16 ? 0x7FC0 : 0x7E00;
      ASSERT_EQ(NarrowedToNearest(storage, wide), wanted) << stored;
      for (const uint32_t random : {0u, 0x7FFFFFFFu, 0xFFFFFFFFu})
        ASSERT_EQ(NarrowedAtRandom(storage, wide, random), wanted) << stored;
    }
  }
}

// The compiler's own conversion, where it has one; only infinity is not reached here.
#ifdef __FLT16_MAX__
TEST(Narrow, Float16IsThatOfTheCompiler) {
  for (uint32_t stored = 0; stored < 0x7C00; ++stored)
    ASSERT_EQ(Widened(Storage::kFloat16, static_cast<uint16_t>(stored)),
              static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(stored))));
  for (const float x : HardNumbers(Storage::kFloat16, 200'000, 1)) {
    if (std::isnan(x) || std::abs(x) >= 65520.0f) continue;
    ASSERT_EQ(NarrowedToNearest(Storage::kFloat16, x), std::bit_cast<uint16_t>(static_cast<_Float16>(x)))
        << x;
  }
}
#endif

TEST(Narrow, TheNearestIsNearestAndTiesAreEven) {
  for (const Storage storage : kBoth) {
    for (const float x : HardNumbers(storage, 50'000, 2)) {
      if (!std::isfinite(x) || std::abs(x) > LargestOf(storage)) continue;
      const uint16_t found = NarrowedToNearest(storage, x);
      const double distance = std::abs(double{Widened(storage, found)} - x);
      const uint16_t plain = found & 0x7FFF, sign = found & 0x8000;
      for (const int step : {-1, 1}) {
        const int other = plain + step;
        if (other < 0 || other >= InfinityOf(storage)) continue;
        const double away = std::abs(double{Widened(storage, static_cast<uint16_t>(other | sign))} - x);
        ASSERT_LE(distance, away) << x;
        if (distance == away) {
          ASSERT_EQ(found % 2, 0) << x;
        }
      }
    }
  }
}

TEST(Narrow, WhatIsTooLargeBecomesTheLargestAndInfinityStays) {
  for (const Storage storage : kBoth) {
    const uint16_t largest = InfinityOf(storage) - 1;
    const float max = std::numeric_limits<float>::max();
    EXPECT_EQ(NarrowedToNearest(storage, max), largest);
    EXPECT_EQ(NarrowedToNearest(storage, -max), largest | 0x8000);
    EXPECT_EQ(NarrowedAtRandom(storage, max, 0xFFFFFFFF), largest);
    EXPECT_EQ(NarrowedToNearest(storage, kInf), largest + 1);
    EXPECT_EQ(NarrowedAtRandom(storage, -kInf, 5), (largest + 1) | 0x8000);
  }
  EXPECT_EQ(LargestOf(Storage::kFloat16), 65504.0f);
}

// Up exactly as often as the distance says, over all that can be drawn.
TEST(Narrow, ChanceIsTheDistance) {
  struct {
    Storage storage;
    float value, below, above;
    double chance;
  } const cases[] = {{Storage::kBfloat16, 1.0f + 0x1p-9f, 1.0f, 1.0f + 0x1p-7f, 0.25},
                     {Storage::kBfloat16, -1.0f - 0x1p-23f, -1.0f, -1.0f - 0x1p-7f, 0x1p-16},
                     {Storage::kFloat16, 1.0f + 0x1p-11f, 1.0f, 1.0f + 0x1p-10f, 0.5},
                     {Storage::kFloat16, 0x1p-26f, 0.0f, 0x1p-24f, 0.25},
                     {Storage::kFloat16, 0x1p-14f - 0x1p-27f, 0x1p-14f - 0x1p-24f, 0x1p-14f, 0.875}};
  for (const auto& c : cases) {
    size_t ups = 0;
    for (uint32_t i = 0; i < 1u << 16; ++i) {
      const float got = Widened(c.storage, NarrowedAtRandom(c.storage, c.value, i << 16));
      ASSERT_TRUE(got == c.below || got == c.above) << c.value << " became " << got;
      ups += got == c.above;
    }
    EXPECT_EQ(static_cast<double>(ups) / (1u << 16), c.chance) << c.value;
  }
}

// Every bit of what decides is fair, over columns, keys' seeds and what counts up.
TEST(Narrow, RandomBitsAreFairAndDiffer) {
  constexpr uint32_t kDraws = 1 << 16;
  for (const int how : {0, 1, 2}) {
    std::array<uint32_t, 32> ones{};
    uint32_t equal = 0, last = 0;
    for (uint32_t i = 0; i < kDraws; ++i) {
      const uint32_t bits = how == 0   ? RoundingBits(Mix64(7), i)
                            : how == 1 ? RoundingBits(Mix64(7, i), 3)
                                       : RoundingBits(i, 0);
      for (size_t b = 0; b < 32; ++b) ones[b] += bits >> b & 1;
      equal += i > 0 && (bits >> 16) == (last >> 16);
      last = bits;
    }
    // Six standard deviations.
    for (const uint32_t count : ones) EXPECT_NEAR(count, kDraws / 2, 6 * std::sqrt(kDraws) / 2) << how;
    EXPECT_LT(equal, 12u) << how;  // one is expected
  }
}

class NarrowOn : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Target, NarrowOn,
                         testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& tested) { return std::string(tested.param->name); });

TEST_P(NarrowOn, WidensAsTheReference) {
  for (const Storage storage : kBoth) {
    for (const size_t dim : {size_t{1}, size_t{3}, size_t{8}, size_t{16}, size_t{17}, size_t{0x10000}}) {
      std::vector<uint16_t> stored(dim);
      for (size_t i = 0; i < dim; ++i) stored[i] = static_cast<uint16_t>(i * 0x3001 + dim);
      std::vector<float> out(dim + 1, -7.0f);
      const uint16_t* const row = stored.data();
      float* const to = out.data();
      kernels().widen_rows(storage, &row, &to, 1, dim);
      for (size_t i = 0; i < dim; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(Widened(storage, stored[i])))
            << stored[i];
      }
      ASSERT_EQ(out[dim], -7.0f);
    }
  }
}

// kSum of a gradient to a row of zeros rounds the gradient itself.
TEST_P(NarrowOn, RoundsAtRandomAsTheReference) {
  for (const Storage storage : kBoth) {
    const std::vector<float> values = HardNumbers(storage, 100'000, 3);
    std::vector<uint16_t> stored(values.size() + 1, 0);
    uint16_t* const row = stored.data();
    const float* const given = values.data();
    for (const uint64_t seed : {0ull, 0x123456789ABCDEFull, ~0ull}) {
      std::fill(stored.begin(), stored.end(), 0);
      NarrowRowStep step(StepNumbers(OptimizerKind::kSum, 0, {}, 1), {}, values.size(), storage);
      kernels().update_narrow_rows(step, &row, &seed, &given, 1);
      for (size_t i = 0; i < values.size(); ++i) {
        const float sum = ReferenceCanonical(0.0f + values[i]);
        ASSERT_EQ(stored[i], NarrowedAtRandom(storage, sum, RoundingBits(seed, static_cast<uint32_t>(i))))
            << values[i] << " at " << i;
      }
    }
  }
}

// Every optimizer of sparse tables, five steps, with state behind the values; the second row comes
// twice.
struct Rows {
  Rows(size_t row_dim, size_t state, Storage kept, uint64_t seed)
      : dim(row_dim), floats(NarrowElements(dim) / 2 + state + 1) {
    Random random(seed);
    for (auto& row : memory) {
      row.assign(floats, -7.0f);
      auto* const values = reinterpret_cast<uint16_t*>(row.data());
      for (size_t i = 0; i < NarrowElements(dim); ++i) values[i] = 0;
      for (size_t i = 0; i < dim; ++i)
        values[i] = NarrowedToNearest(kept, static_cast<float>(random.Between(-999, 999)) * 0.00137f);
      std::fill_n(row.begin() + static_cast<ptrdiff_t>(NarrowElements(dim) / 2), state, 0.25f);
    }
  }
  uint16_t* values(size_t r) { return reinterpret_cast<uint16_t*>(memory[r].data()); }
  float* state(size_t r) { return memory[r].data() + NarrowElements(dim) / 2; }
  size_t dim, floats;
  std::array<std::vector<float>, 3> memory;
};

void StepSlowly(const ReferenceCase& c, Storage storage, uint64_t step, uint64_t seed, const float* g,
                Rows& rows, size_t r) {
  const size_t dim = rows.dim;
  std::vector<float> after(dim);
  if (c.kind == OptimizerKind::kRowwiseAdagrad) {
    for (size_t i = 0; i < dim; ++i) after[i] = Widened(storage, rows.values(r)[i]);
    ReferenceRowwiseAdagrad(c.flags, c.hyper, {g, g + dim}, after, *rows.state(r));
  } else {
    for (size_t i = 0; i < dim; ++i) {
      ReferenceElement e{.w = Widened(storage, rows.values(r)[i])};
      const uint32_t columns = StateColumns(c.kind, c.flags);
      for (uint32_t k = 0; k < columns; ++k) e.state[k] = rows.state(r)[k * dim + i];
      ReferenceUpdate(c.kind, c.flags, c.hyper, step, g[i], e);
      for (uint32_t k = 0; k < columns; ++k) rows.state(r)[k * dim + i] = e.state[k];
      after[i] = e.w;
    }
  }
  for (size_t i = 0; i < dim; ++i)
    rows.values(r)[i] = NarrowedAtRandom(storage, after[i], RoundingBits(seed, static_cast<uint32_t>(i)));
}

TEST_P(NarrowOn, EveryRowOptimizerAgreesWithTheReference) {
  using enum OptimizerKind;
  const ReferenceCase cases[] = {
      {"sum", kSum, 0, {}},
      {"sgd", kSgd, 0, {.lr = 0.1, .weight_decay = 0.01}},
      {"sgd, maximize", kSgd, kMaximize, {.lr = 0.1}},
      {"adagrad", kAdagrad, 0, {.lr = 0.05, .weight_decay = 0.02, .eps = 1e-10, .dampening = 0.1}},
      {"sparse_adam", kSparseAdam, 0, {.lr = 0.003, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
      {"rowwise_adagrad", kRowwiseAdagrad, 0, {.lr = 0.1, .eps = 1e-8}},
      {"ftrl", kFtrl, 0, {.lr = 0.1, .weight_decay = 0.2, .beta1 = 0.05, .beta2 = 1.0}}};
  for (const ReferenceCase& c : cases) {
    for (const Storage storage : kBoth) {
      for (const size_t dim : {1, 2, 3, 5, 8, 9, 16, 17, 32, 33, 64, 100}) {
        SCOPED_TRACE(testing::Message() << c.name << ", dim " << dim << ", " << static_cast<int>(storage));
        const uint32_t columns = StateColumns(c.kind, c.flags);
        Rows fast(dim, c.kind == kRowwiseAdagrad ? 1 : columns * dim, storage, dim);
        Rows slow = fast;
        const size_t order[] = {0, 1, 1, 2};
        Random random(dim);
        for (uint64_t step = 1; step <= 5; ++step) {
          std::vector<float> g(4 * dim);
          for (float& x : g) x = static_cast<float>(random.Between(-999, 999)) * 0.0137f;
          uint16_t* rows[4];
          const float* gradients[4];
          uint64_t seeds[4];
          for (size_t k = 0; k < 4; ++k) {
            rows[k] = fast.values(order[k]);
            gradients[k] = g.data() + k * dim;
            seeds[k] = random.Next();
          }
          const NarrowRowStep work(StepNumbers(c.kind, c.flags, c.hyper, step), GradientOf(c.flags, 1, 1),
                                   dim, storage);
          kernels().update_narrow_rows(work, rows, seeds, gradients, 4);
          for (size_t k = 0; k < 4; ++k) StepSlowly(c, storage, step, seeds[k], gradients[k], slow, order[k]);
          for (size_t r = 0; r < 3; ++r) {
            ASSERT_EQ(0,
                      std::memcmp(fast.memory[r].data(), slow.memory[r].data(), fast.floats * sizeof(float)))
                << "row " << r << ", step " << step;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cairn::optimizer

// Sparse tables that keep their values in 16 bits: what is read, that many small steps are not lost,
// and that owners agree. slot_copy_test.cc copies such tables too.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/byte_stream.h"
#include "optimizer/narrow.h"
#include "table/slot_table_testing.h"

namespace cairn::table {
namespace {

constexpr Storage kBoth[] = {Storage::kBfloat16, Storage::kFloat16};
constexpr SlotId kNarrowSlot{1};

wire::TableInfo Narrow(uint32_t dim, OptimizerKind optimizer, Storage storage,
                       Init init = Init::Normal(0, 1, 5)) {
  wire::TableInfo info = Sparse(dim, optimizer, init);
  info.spec.storage = storage;
  return info;
}
std::vector<float> Rounded(Storage storage, std::vector<float> values) {
  optimizer::RoundSpan(storage, values);
  return values;
}

struct NarrowRows : ::testing::Test {
  Arena arena;
  std::unique_ptr<SlotTable> Make(const wire::TableInfo& info) {
    return SlotTable::Make(info, kNarrowSlot, kSlots, arena);
  }
};

TEST_F(NarrowRows, InitialAndAssignedRowsAreTheNearest) {
  const auto keys = KeysOf(kNarrowSlot, 40);
  for (const Storage storage : kBoth) {
    auto full = Make(Sparse(5, OptimizerKind::kSgd));
    auto narrow = Make(Narrow(5, OptimizerKind::kSgd, storage));
    const auto initial = Rounded(storage, ReadFloats(*full, keys));
    ExpectSameBits(ReadFloats(*narrow, keys), initial);
    EXPECT_EQ(narrow->rows(), 0u);
    // A row that exists reads as it did before.
    narrow->Apply(keys, Bytes(std::vector<float>(keys.size() * 5)), {}, {.lr = 0.5});
    EXPECT_EQ(narrow->rows(), keys.size());
    ExpectSameBits(ReadFloats(*narrow, keys), initial);

    Random random(4);
    const auto given = RandomFloats(random, keys.size() * 5);
    ASSERT_TRUE(narrow->CheckAssign(keys, Bytes(given), {}, 0).ok());
    narrow->Assign(keys, Bytes(given), {}, 0);
    ExpectSameBits(ReadFloats(*narrow, keys), Rounded(storage, given));
  }
}

// Steps of a sixty-fourth of what the format can show at 1: to the nearest, none of them would ever
// change anything.
TEST_F(NarrowRows, ManySmallStepsComeToWhatTheyAre) {
  for (const Storage storage : kBoth) {
    const float grain = storage == Storage::kBfloat16 ? 0x1p-7f : 0x1p-10f, step = grain / 64;
    ASSERT_EQ(Rounded(storage, {1.0f + step}), std::vector<float>{1.0f});
    constexpr size_t kRows = 64, kSteps = 640;
    constexpr uint32_t kDim = 16;
    const auto keys = KeysOf(kNarrowSlot, kRows);
    auto table = Make(Narrow(kDim, OptimizerKind::kSgd, storage, Init::Constant(1.0f)));
    const std::vector<float> gradients(kRows * kDim, -1.0f);
    for (size_t i = 0; i < kSteps; ++i) table->Apply(keys, Bytes(gradients), {}, {.lr = step});
    double sum = 0, squares = 0;
    for (const float value : ReadFloats(*table, keys)) {
      const double moved = (value - 1.0) / grain;  // 10 are expected
      sum += moved;
      squares += moved * moved;
    }
    constexpr double kCount = kRows * kDim;
    const double mean = sum / kCount, variance = squares / kCount - mean * mean;
    // Of one element: 640 draws of 1/64: variance 9.84. Of the mean of 1024: deviation 0.098.
    EXPECT_NEAR(mean, 10.0, 0.5);
    EXPECT_NEAR(variance, 9.84, 2.5);
  }
}

TEST_F(NarrowRows, StateIsFull) {
  const auto keys = KeysOf(kNarrowSlot, 3);
  for (const Storage storage : kBoth) {
    auto full = Make(Sparse(3, OptimizerKind::kAdagrad));
    auto narrow = Make(Narrow(3, OptimizerKind::kAdagrad, storage));
    Random random(6);
    for (int i = 0; i < 5; ++i) {
      const auto g = RandomFloats(random, keys.size() * 3);
      full->Apply(keys, Bytes(g), {}, {.lr = 0.1, .eps = 1e-10});
      narrow->Apply(keys, Bytes(g), {}, {.lr = 0.1, .eps = 1e-10});
    }
    ExpectSameBits(ReadFloats(*narrow, keys, 1), ReadFloats(*full, keys, 1));
  }
}

// Contributions of a round come in any order; those of one element each are sums without an order.
TEST_F(NarrowRows, ARoundDoesNotDependOnWhoCameFirst) {
  const auto keys = KeysOf(kNarrowSlot, 30);
  const std::vector<RowKey> one(keys.begin(), keys.begin() + 20), two(keys.begin() + 10, keys.end());
  auto a = Make(Narrow(4, OptimizerKind::kSgd, Storage::kBfloat16));
  auto b = Make(Narrow(4, OptimizerKind::kSgd, Storage::kBfloat16));
  Random random(7);
  for (int round = 0; round < 5; ++round) {
    const auto g1 = RandomFloats(random, one.size() * 4), g2 = RandomFloats(random, two.size() * 4);
    a->Stage(one, Bytes(g1), {}, 1);
    a->Stage(two, Bytes(g2), {}, 1);
    b->Stage(two, Bytes(g2), {}, 1);
    b->Stage(one, Bytes(g1), {}, 1);
    for (auto* table : {a.get(), b.get()}) table->ApplyStaged({.lr = 0.01}, 2, 1);
    ASSERT_EQ(a->Hash(), b->Hash()) << round;
  }
}

// A key twice in a push: two steps with draws of their own.
TEST_F(NarrowRows, AKeyThatRepeatsIsRoundedAnewEachTime) {
  const RowKey key = KeysOf(kNarrowSlot, 1)[0];
  constexpr size_t kTimes = 4096;
  auto table = Make(Narrow(1, OptimizerKind::kSum, Storage::kBfloat16, Init::Constant(1.0f)));
  table->Apply(std::vector<RowKey>(kTimes, key), Bytes(std::vector<float>(kTimes, 0x1p-11f)), {}, {});
  // 256 steps of 1/128 are expected up to 2, and half as many of twice as much beyond.
  EXPECT_NEAR(ReadFloats(*table, std::vector{key})[0], 3.0f, 0.75f);
}

TEST_F(NarrowRows, DrawsDependOnTheSeedTheTableAndTheOperation) {
  const auto keys = KeysOf(kNarrowSlot, 64);
  const std::vector<float> g(keys.size() * 8, 0.00123f);
  const auto after = [&](uint64_t seed, uint64_t stream, int before) {
    Init init = Init::Constant(1.0f);
    init.seed = seed;
    init.stream = stream;
    auto table = Make(Narrow(8, OptimizerKind::kSum, Storage::kFloat16, init));
    // An operation that changes nothing, and counts.
    for (int i = 0; i < before; ++i) table->Apply(keys, Bytes(std::vector<float>(g.size())), {}, {});
    table->Apply(keys, Bytes(g), {}, {});
    return ReadFloats(*table, keys);
  };
  const auto base = after(1, 0, 0);
  EXPECT_EQ(after(1, 0, 0), base);
  EXPECT_NE(after(2, 0, 0), base);
  EXPECT_NE(after(1, 9, 0), base);
  EXPECT_NE(after(1, 0, 1), base);
}

TEST_F(NarrowRows, AssigningWhatFloat16CannotHoldIsRefused) {
  const auto keys = KeysOf(kNarrowSlot, 1);
  auto half = Make(Narrow(2, OptimizerKind::kSgd, Storage::kFloat16));
  auto brain = Make(Narrow(2, OptimizerKind::kSgd, Storage::kBfloat16));
  const std::vector<float> good = {65504.0f, -65504.0f}, bad = {1.0f, -70000.0f};
  EXPECT_TRUE(half->CheckAssign(keys, Bytes(good), {}, 0).ok());
  const Status refused = half->CheckAssign(keys, Bytes(bad), {}, 0);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("65504"), std::string::npos) << refused.message();
  EXPECT_TRUE(half->Check(keys, Bytes(bad), {}).ok());  // a gradient may be as large as it likes
  EXPECT_TRUE(brain->CheckAssign(keys, Bytes(bad), {}, 0).ok());
}

TEST_F(NarrowRows, TakeLessAndAreCopiedNarrow) {
  const auto keys = KeysOf(kNarrowSlot, 2000);
  const std::vector<float> g(keys.size() * 16, 0.1f);
  auto full = Make(Sparse(16, OptimizerKind::kSgd));
  auto narrow = Make(Narrow(16, OptimizerKind::kSgd, Storage::kBfloat16));
  full->Apply(keys, Bytes(g), {}, {.lr = 0.1});
  narrow->Apply(keys, Bytes(g), {}, {.lr = 0.1});
  EXPECT_EQ(full->content_bytes() - narrow->content_bytes(), keys.size() * 32);
  ByteWriter of_full, of_narrow;
  full->Save(of_full);
  narrow->Save(of_narrow);
  EXPECT_EQ(of_full.Take().size() - of_narrow.Take().size(), keys.size() * 32 - 8);
}

// What comes next is rounded by it: owners with equal rows that differ in it would drift apart.
TEST_F(NarrowRows, TheNumberOfOperationsIsPartOfTheContent) {
  const auto keys = KeysOf(kNarrowSlot, 3);
  const std::vector<float> zeros(keys.size() * 4);
  auto once = Make(Narrow(4, OptimizerKind::kSgd, Storage::kBfloat16));
  auto twice = Make(Narrow(4, OptimizerKind::kSgd, Storage::kBfloat16));
  for (SlotTable* table : {once.get(), twice.get(), twice.get()})
    table->Apply(keys, Bytes(zeros), {}, {.lr = 0.5});
  ExpectSameBits(ReadFloats(*once, keys), ReadFloats(*twice, keys));
  EXPECT_NE(once->Hash(), twice->Hash());
  once->Apply(keys, Bytes(zeros), {}, {.lr = 0.5});
  EXPECT_EQ(once->Hash(), twice->Hash());
}

}  // namespace
}  // namespace cairn::table

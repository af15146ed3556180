// Every optimizer through a dense slot, async and in rounds, against the reference of
// src/optimizer; its state columns and step counts, read, assigned and hashed.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "optimizer/update_reference.h"
#include "table/slot_table_testing.h"

namespace cairn::table {
namespace {

using optimizer::ReferenceCase;
using optimizer::ReferenceCases;
using optimizer::ReferenceElement;

constexpr uint64_t kSize = 5000;
const std::vector<uint64_t> kEnds = {1, 700, 701, 3000, 5000};
constexpr size_t kSegments = 5;
constexpr float kInitialState = 0.25f;

// Those that dense tables have.
std::vector<ReferenceCase> DenseCases() {
  std::vector<ReferenceCase> cases = ReferenceCases();
  std::erase_if(cases, [](const ReferenceCase& c) { return c.kind == OptimizerKind::kSparseAdam; });
  return cases;
}
bool Accumulates(OptimizerKind kind) {
  return kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kFtrl;
}
wire::TableInfo InfoOf(const ReferenceCase& c) {
  wire::TableInfo info = Dense(kSize, c.kind);
  info.spec.mode = c.kind == OptimizerKind::kMean ? Mode::kSync : Mode::kAsync;
  info.spec.optimizer_flags = c.flags;
  info.spec.segments = kEnds;
  if (Accumulates(c.kind)) info.spec.initial_state = kInitialState;
  return info;
}
size_t SegmentOf(uint64_t element) {
  return static_cast<size_t>(std::ranges::upper_bound(kEnds, element) - kEnds.begin());
}

// One slot that holds the whole table, and what it should hold.
struct Both {
  explicit Both(const ReferenceCase& c) : test(c) {
    table = SlotTable::Make(InfoOf(c), SlotId{0}, 1, arena);
    const auto values = ReadFloats(*table, {});
    for (size_t i = 0; i < kSize; ++i) {
      elements[i].w = values[i];
      if (Accumulates(c.kind)) elements[i].state[c.kind == OptimizerKind::kFtrl ? 1 : 0] = kInitialState;
    }
  }
  // A step of the reference on the segments of the mask, with the gradient as it is seen.
  void Step(const std::vector<std::byte>& mask, const std::vector<float>& g) {
    for (size_t s = 0; s < kSegments; ++s) steps[s] += InMask(mask, s) ? 1 : 0;
    for (size_t i = 0; i < kSize; ++i) {
      if (const size_t s = SegmentOf(i); InMask(mask, s))
        optimizer::ReferenceUpdate(test.kind, test.flags, test.hyper, steps[s], g[i], elements[i]);
    }
  }
  void Compare() const {
    const auto values = ReadFloats(*table, {}), counted = ReadFloats(*table, {}, kStepColumn);
    std::vector<float> expected(kSize), expected_steps(kSize);
    for (size_t i = 0; i < kSize; ++i) {
      expected[i] = elements[i].w;
      expected_steps[i] = static_cast<float>(steps[SegmentOf(i)]);
    }
    ExpectSameBits(values, expected);
    ExpectSameBits(counted, expected_steps);
    for (uint8_t c = 1; c <= StateColumns(test.kind, test.flags); ++c) {
      for (size_t i = 0; i < kSize; ++i) expected[i] = elements[i].state[c - 1];
      ExpectSameBits(ReadFloats(*table, {}, c), expected);
    }
  }
  ReferenceCase test;
  Arena arena;
  std::unique_ptr<SlotTable> table;
  std::vector<ReferenceElement> elements = std::vector<ReferenceElement>(kSize);
  uint64_t steps[kSegments] = {};
};

const std::vector<std::byte> kAll = {};

TEST(DenseOptimizers, AsyncAgreesWithTheReference) {
  for (const ReferenceCase& c : DenseCases()) {
    if (c.kind == OptimizerKind::kMean) continue;
    SCOPED_TRACE(testing::Message() << c.name << ", flags " << c.flags);
    Random random(5);
    Both both(c);
    both.Compare();
    for (const auto& mask : {kAll, MaskOf(5, {1, 3}), kAll, MaskOf(5, {0, 1, 4}), MaskOf(5, {2}), kAll}) {
      const auto g = RandomFloats(random, kSize);
      ASSERT_TRUE(both.table->Check({}, Bytes(g), mask).ok());
      both.table->Apply({}, Bytes(g), mask, c.hyper);
      both.Step(mask, g);
      both.Compare();
    }
  }
}

TEST(DenseOptimizers, RoundsAgreeWithTheReference) {
  for (const ReferenceCase& c : DenseCases()) {
    SCOPED_TRACE(testing::Message() << c.name << ", flags " << c.flags);
    Random random(6);
    Both both(c);
    for (int round = 0; round < 6; ++round) {
      const auto a = RandomFloats(random, kSize), b = RandomFloats(random, kSize);
      // Segment 2 comes with the second contribution only, 3 with the first, 4 now and then.
      const auto mask_a = MaskOf(5, {0, 1, 3}), mask_b = MaskOf(5, {0, 1, 2});
      both.table->Stage({}, Bytes(a), mask_a, 1.0);
      both.table->Stage({}, Bytes(b), round == 2 ? kAll : mask_b, 0.5);
      if (round == 3) {
        both.table->DropStaged();
        continue;
      }
      const double scale = round % 2 == 0 ? 1.0 : 0.3;
      both.table->ApplyStaged(c.hyper, 1.5, scale);
      std::vector<float> seen(kSize);
      for (size_t i = 0; i < kSize; ++i) {
        const size_t s = SegmentOf(i);
        const bool in_a = InMask(mask_a, s), in_b = round == 2 || InMask(mask_b, s);
        const float half = 0.5f * b[i];
        const float sum = !in_a ? half : in_b ? a[i] + half : a[i];
        seen[i] = c.kind == OptimizerKind::kSum ? optimizer::ReferenceGradient(sum, 1, scale)
                                                : optimizer::ReferenceGradient(sum, 1.5, scale);
      }
      both.Step(round == 2 ? kAll : MaskOf(5, {0, 1, 2, 3}), seen);
      both.Compare();
    }
  }
}

// Values, state and steps are all there is: a table that is given them goes on as the first one.
TEST(DenseOptimizers, ColumnsThatAreReadAndAssignedCarryOn) {
  for (const ReferenceCase& c : DenseCases()) {
    if (c.kind == OptimizerKind::kMean) continue;
    SCOPED_TRACE(testing::Message() << c.name << ", flags " << c.flags);
    Random random(7);
    Arena arena;
    auto first = SlotTable::Make(InfoOf(c), SlotId{0}, 1, arena);
    auto second = SlotTable::Make(InfoOf(c), SlotId{0}, 1, arena);
    const auto step = [&](SlotTable& table, const std::vector<float>& g, const auto& mask) {
      table.Apply({}, Bytes(g), mask, c.hyper);
    };
    step(*first, RandomFloats(random, kSize), kAll);
    step(*first, RandomFloats(random, kSize), MaskOf(5, {0, 3}));
    EXPECT_FALSE(second->assigned());
    std::vector<uint8_t> columns = {0, kStepColumn};
    for (uint8_t i = 1; i <= StateColumns(c.kind, c.flags); ++i) columns.push_back(i);
    for (uint8_t column : columns) {
      const auto values = ReadFloats(*first, {}, column);
      ASSERT_TRUE(second->CheckAssign({}, Bytes(values), {}, column).ok());
      second->Assign({}, Bytes(values), {}, column);
      ExpectSameBits(ReadFloats(*second, {}, column), values);
    }
    EXPECT_TRUE(second->assigned());
    EXPECT_NE(first->Hash(), second->Hash()) << "only one of them is assigned";
    first->Assign({}, Bytes(ReadFloats(*first, {})), {}, 0);
    EXPECT_EQ(first->Hash(), second->Hash());
    const auto g = RandomFloats(random, kSize);
    step(*first, g, kAll);
    step(*second, g, kAll);
    EXPECT_EQ(first->Hash(), second->Hash());
    for (uint8_t column : columns)
      ExpectSameBits(ReadFloats(*first, {}, column), ReadFloats(*second, {}, column));
  }
}

TEST(DenseOptimizers, AnAssignLeavesTheRestAlone) {
  const ReferenceCase adam{
      "adam", OptimizerKind::kAdam, 0, {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1}};
  Random random(8);
  Arena arena;
  auto table = SlotTable::Make(InfoOf(adam), SlotId{0}, 1, arena);
  table->Apply({}, Bytes(RandomFloats(random, kSize)), {}, adam.hyper);
  const auto values = ReadFloats(*table, {}), average = ReadFloats(*table, {}, 1);
  const std::vector<float> sevens(kSize, 7.0f);
  table->Assign({}, Bytes(average), {}, 1);
  EXPECT_FALSE(table->assigned()) << "state is not the values";
  table->Assign({}, Bytes(sevens), MaskOf(5, {1, 4}), 0);
  EXPECT_TRUE(table->assigned());
  auto expected = values;
  for (size_t i = 0; i < kSize; ++i)
    if (SegmentOf(i) == 1 || SegmentOf(i) == 4) expected[i] = 7;
  ExpectSameBits(ReadFloats(*table, {}), expected);
  ExpectSameBits(ReadFloats(*table, {}, 1), average);
  ExpectSameBits(ReadFloats(*table, {}, kStepColumn), std::vector<float>(kSize, 1.0f));
  table->Assign({}, Bytes(sevens), MaskOf(5, {0}), 2);
  EXPECT_EQ(ReadFloats(*table, {}, 2)[0], 7.0f);
  EXPECT_NE(ReadFloats(*table, {}, 2)[1], 7.0f);
  ExpectSameBits(ReadFloats(*table, {}), expected);
  // Step counts: the first element of a piece speaks for it, whatever it is.
  std::vector<float> steps(kSize, 99.0f);
  steps[0] = 3.4f, steps[1] = 2.6f, steps[700] = -5.0f, steps[701] = 0.0f, steps[3000] = 16.0f;
  table->Assign({}, Bytes(steps), {}, kStepColumn);
  const auto counted = ReadFloats(*table, {}, kStepColumn);
  EXPECT_EQ(counted[0], 3);
  EXPECT_EQ(counted[1], 3);
  EXPECT_EQ(counted[699], 3);
  EXPECT_EQ(counted[700], 0);
  EXPECT_EQ(counted[701], 0);
  EXPECT_EQ(counted[4999], 16);
}

TEST(DenseOptimizers, ARoundOfAssignsGivesTheWeightedMean) {
  const ReferenceCase sgd{"sgd", OptimizerKind::kSgd, kWithMomentum, {.lr = 0.1, .beta1 = 0.9}};
  Arena arena;
  auto table = SlotTable::Make(InfoOf(sgd), SlotId{0}, 1, arena);
  const auto before = ReadFloats(*table, {});
  for (uint8_t column : {uint8_t{0}, uint8_t{1}, kStepColumn}) {
    table->Stage({}, Bytes(std::vector<float>(kSize, 2.0f)), {}, 1.0);
    table->Stage({}, Bytes(std::vector<float>(kSize, 6.0f)), MaskOf(5, {0, 1, 2, 3, 4}), 3.0);
    EXPECT_EQ(table->assigned(), column != 0);
    table->AssignStaged(column, 4.0);
    EXPECT_FALSE(table->staged());
    ExpectSameBits(ReadFloats(*table, {}, column), std::vector<float>(kSize, 5.0f));
  }
  table->Stage({}, Bytes(std::vector<float>(kSize, 8.0f)), MaskOf(5, {4}), 1.0);
  table->AssignStaged(0, 1.0);
  const auto values = ReadFloats(*table, {});
  EXPECT_EQ(values[2999], 5.0f) << "nobody gave a value for this segment";
  EXPECT_EQ(values[3000], 8.0f);
  EXPECT_NE(before[0], values[0]);
  // The momentum that was loaded counts: 5 steps have been made.
  table->Apply({}, Bytes(std::vector<float>(kSize, 1.0f)), {}, sgd.hyper);
  EXPECT_EQ(ReadFloats(*table, {}, 1)[0], 5.0f * 0.9f + 1.0f);
}

TEST(DenseOptimizers, ChecksOfColumnsAndAssigns) {
  Arena arena;
  auto info = Dense(100, OptimizerKind::kAdam);
  auto table = SlotTable::Make(info, SlotId{0}, 1, arena);
  std::vector<float> values(100, 1.0f);
  for (uint8_t column : {uint8_t{0}, uint8_t{1}, uint8_t{2}, kStepColumn}) {
    EXPECT_TRUE(table->CheckRead({}, column).ok());
    EXPECT_TRUE(table->CheckAssign({}, Bytes(values), {}, column).ok());
  }
  for (const int number : {3, 4, 14, 16, 255}) {
    const auto column = static_cast<uint8_t>(number);
    EXPECT_EQ(table->CheckRead({}, column).code(), Code::kInvalidArgument) << int{column};
    EXPECT_EQ(table->CheckAssign({}, Bytes(values), {}, column).code(), Code::kInvalidArgument)
        << int{column};
  }
  EXPECT_EQ(table->CheckAssign({}, Bytes(values).first(40), {}, 0).code(), Code::kInvalidArgument);
  values[50] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(table->CheckAssign({}, Bytes(values), {}, 0).code(), Code::kNotFinite);
  EXPECT_EQ(table->CheckAssign({}, Bytes(values), {}, 1).code(), Code::kNotFinite);
}

TEST(DenseOptimizers, AnAssignIsCheckedInTheSegmentsThatItHas) {
  Arena arena;
  auto info = Dense(100, OptimizerKind::kSgd);
  info.spec.segments = {40, 100};
  auto table = SlotTable::Make(info, SlotId{0}, 1, arena);
  std::vector<float> values(100, 1.0f);
  values[50] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::byte> first{std::byte{1}}, second{std::byte{2}}, third{std::byte{4}};
  EXPECT_TRUE(table->CheckAssign({}, Bytes(values), first, 0).ok());
  EXPECT_EQ(table->CheckAssign({}, Bytes(values), second, 0).code(), Code::kNotFinite);
  EXPECT_EQ(table->CheckAssign({}, Bytes(values), third, 0).code(), Code::kInvalidArgument);
}

TEST(DenseOptimizers, StateTakesMemoryWhenItIsFirstUsedAndIsHashedByContent) {
  const ReferenceCase adagrad{"adagrad", OptimizerKind::kAdagrad, 0, {.lr = 0.1, .eps = 1e-10}};
  Arena arena;
  auto a = SlotTable::Make(InfoOf(adagrad), SlotId{0}, 1, arena);
  auto b = SlotTable::Make(InfoOf(adagrad), SlotId{0}, 1, arena);
  const uint64_t memory = a->memory_bytes(), hash = a->Hash();
  ExpectSameBits(ReadFloats(*a, {}, 1), std::vector<float>(kSize, kInitialState));
  EXPECT_EQ(a->memory_bytes(), memory) << "reading takes none";
  b->Assign({}, Bytes(std::vector<float>(kSize, kInitialState)), {}, 1);
  EXPECT_GE(b->memory_bytes(), memory + kSize * sizeof(float));
  EXPECT_EQ(b->Hash(), hash) << "made or not, it is the same state";
  std::vector<float> other(kSize, kInitialState);
  other[4999] = 0.5f;
  b->Assign({}, Bytes(other), {}, 1);
  EXPECT_NE(b->Hash(), hash) << "the hash covers the state";
  b->Assign({}, Bytes(std::vector<float>(kSize, kInitialState)), {}, 1);
  b->Assign({}, Bytes(std::vector<float>(kSize, 4.0f)), MaskOf(5, {2}), kStepColumn);
  EXPECT_NE(b->Hash(), hash) << "and the steps";
  b->Assign({}, Bytes(std::vector<float>(kSize, 0.0f)), {}, kStepColumn);
  EXPECT_EQ(b->Hash(), hash);
  b->Assign({}, Bytes(other), {}, 0);
  EXPECT_NE(b->Hash(), hash) << "and the values";
}

TEST(DenseOptimizers, SlotsWithoutElements) {
  const ReferenceCase adam{
      "adam", OptimizerKind::kAdam, 0, {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1}};
  wire::TableInfo info = Dense(3, adam.kind);
  info.spec.segments = {1, 3};
  Arena arena;
  uint64_t elements = 0;
  for (uint32_t s = 0; s < 8; ++s) {
    auto table = SlotTable::Make(info, SlotId{s}, 8, arena);
    const std::vector<float> g(table->rows(), 1.0f);
    elements += table->rows();
    EXPECT_EQ(table->assigned(), table->rows() == 0);
    table->Apply({}, Bytes(g), {}, adam.hyper);
    table->Stage({}, Bytes(g), {}, 1);
    EXPECT_TRUE(table->ReportStaged(1).finite);
    table->ApplyStaged(adam.hyper, 1, 1);
    table->Assign({}, Bytes(g), {}, 1);
    table->Stage({}, Bytes(g), {}, 1);
    table->AssignStaged(2, 1);
    ExpectSameBits(ReadFloats(*table, {}, 2), g);
    EXPECT_EQ(ReadFloats(*table, {}, kStepColumn).size(), table->rows());
    table->Hash();
  }
  EXPECT_EQ(elements, 3u);
}

}  // namespace
}  // namespace cairn::table

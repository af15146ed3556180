// A dense table's slot: initial values, sum and SGD against plain arithmetic, checks, int64.
#include "table/slot_table.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "table/initial_value.h"
#include "table/slot_table_testing.h"

namespace cairn::table {
namespace {

TEST(DenseSlot, EverySlotStartsWithItsElementsInitialValues) {
  for (uint64_t size : {1u, 5u, 1023u, 7850u, 300'000u}) {
    for (uint32_t slots : {1u, 4u, 6u, 256u}) {
      const auto info = Dense(size, OptimizerKind::kSgd);
      const auto runs = wire::RunsBySlot(wire::DenseLayout::Of(info.id, size, slots));
      const InitialValue initial(info.spec.init, info.id, ElementType::kFloat32);
      Arena arena;
      uint64_t total = 0;
      for (uint32_t s = 0; s < slots; ++s) {
        auto table = SlotTable::Make(info, SlotId{s}, slots, arena);
        std::vector<float> expected;
        for (const wire::DenseRun& run : runs[s]) {
          std::vector<float> part(run.count);
          initial.FillElements(run.begin, run.count, reinterpret_cast<std::byte*>(part.data()));
          expected.insert(expected.end(), part.begin(), part.end());
        }
        ASSERT_EQ(table->rows(), expected.size());
        ExpectSameBits(ReadFloats(*table, {}), expected);
        total += table->rows();
      }
      EXPECT_EQ(total, size);
    }
  }
}

TEST(DenseSlot, AsyncAndSyncAgreeWithPlainArithmetic) {
  for (OptimizerKind optimizer : {OptimizerKind::kSum, OptimizerKind::kSgd}) {
    Arena arena;
    auto table = SlotTable::Make(Dense(5000, optimizer), SlotId{0}, 1, arena);
    std::vector<float> w = ReadFloats(*table, {});
    Random random(4);
    const Hyper h{.lr = 0.3, .weight_decay = 0.01};
    const float lr = 0.3f, decay = 0.01f;
    const auto g = RandomFloats(random, w.size());
    ASSERT_TRUE(table->Check({}, Bytes(g), {}).ok());
    table->Apply({}, Bytes(g), {}, h);
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = optimizer == OptimizerKind::kSum ? w[i] + g[i] : w[i] - lr * (g[i] + decay * w[i]);
    for (int round = 0; round < 3; ++round) {
      const auto a = RandomFloats(random, w.size()), b = RandomFloats(random, w.size());
      table->Stage({}, Bytes(a), {}, 1.0);
      table->Stage({}, Bytes(b), {}, 0.5);
      table->ApplyStaged(h, 1.5, 1);
      EXPECT_FALSE(table->staged());
      for (size_t i = 0; i < w.size(); ++i) {
        const float sum = a[i] + 0.5f * b[i];
        w[i] = optimizer == OptimizerKind::kSum ? w[i] + sum : w[i] - lr * (sum / 1.5f + decay * w[i]);
      }
    }
    table->Stage({}, Bytes(g), {}, 1.0);
    table->DropStaged();
    EXPECT_FALSE(table->staged());
    ExpectSameBits(ReadFloats(*table, {}), w);
  }
}

TEST(DenseSlot, CheckRefusesKeysWrongLengthsAndNan) {
  Arena arena;
  auto table = SlotTable::Make(Dense(100, OptimizerKind::kSgd), SlotId{0}, 1, arena);
  std::vector<float> g(100, 1.0f);
  const std::vector<RowKey> keys = {1};
  EXPECT_TRUE(table->Check({}, Bytes(g), {}).ok());
  EXPECT_EQ(table->Check(keys, Bytes(g), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckRead(keys, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, Bytes(g).first(396), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, {}, {}).code(), Code::kInvalidArgument);
  g[99] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(table->Check({}, Bytes(g), {}).code(), Code::kNotFinite);
}

TEST(DenseSlot, Int64AndEmptySlots) {
  Arena arena;
  auto info = Dense(3, OptimizerKind::kSum, Init::Constant(2));
  info.spec.element = ElementType::kInt64;
  uint64_t elements = 0;
  for (uint32_t s = 0; s < 8; ++s) {
    auto table = SlotTable::Make(info, SlotId{s}, 8, arena);
    elements += table->rows();
    const std::vector<int64_t> g(table->rows(), 5);
    ASSERT_TRUE(table->Check({}, Bytes(g), {}).ok());
    table->Apply({}, Bytes(g), {}, {});
    table->Stage({}, Bytes(g), {}, 3.0);
    table->Stage({}, Bytes(g), {}, 3.0);
    EXPECT_TRUE(table->staged());
    table->ApplyStaged({}, 0, 1);
    std::vector<int64_t> out(table->rows());
    ASSERT_EQ(table->ReadBytes(0, 0), out.size() * 8);
    table->Read({}, 0, reinterpret_cast<std::byte*>(out.data()));
    EXPECT_EQ(out, std::vector<int64_t>(out.size(), 17));
    int calls = 0;
    table->ForEach([&](RowKey key, std::span<const std::byte> row) {
      ++calls;
      EXPECT_EQ(key, 0u);
      EXPECT_EQ(row.size(), out.size() * 8);
    });
    EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(elements, 3u);
}

TEST(DenseSlot, TheFirstInt64Wins) {
  Arena arena;
  auto info = Dense(6, OptimizerKind::kFirst, Init::Zeros());
  info.spec.element = ElementType::kInt64;
  auto table = SlotTable::Make(info, SlotId{0}, 1, arena);
  table->Apply({}, Bytes(std::vector<int64_t>{1, 0, -3, 0, 5, 0}), {}, {});
  table->Apply({}, Bytes(std::vector<int64_t>{9, 9, 9, 9, 9, 0}), {}, {});
  std::vector<int64_t> out(6);
  table->Read({}, 0, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::vector<int64_t>{1, 9, -3, 9, 5, 0}));
  EXPECT_EQ(table->CheckAssign({}, Bytes(out), {}, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckRead({}, kStepColumn).code(), Code::kInvalidArgument);
}

// A weight so small that it is no float must not bring the server down, nor make NaN.
TEST(SlotTable, ADivisorBelowAnyFloatAppliesNothing) {
  Arena arena;
  auto dense = SlotTable::Make(Dense(10, OptimizerKind::kSgd), SlotId{0}, 1, arena);
  const auto before = ReadFloats(*dense, {});
  dense->Stage({}, Bytes(std::vector<float>(10, 1.0f)), {}, 1e-60);
  dense->ApplyStaged({}, 1e-60, 1);
  ExpectSameBits(ReadFloats(*dense, {}), before);
  auto sparse = SlotTable::Make(Sparse(2, OptimizerKind::kSgd), SlotId{0}, 1, arena);
  const std::vector<RowKey> keys = {5};
  sparse->Stage(keys, Bytes(std::vector<float>{1, 1}), {}, 1e-60);
  sparse->ApplyStaged({}, 1e-60, 1);
  EXPECT_EQ(sparse->rows(), 0u);
  EXPECT_FALSE(sparse->staged());
}

TEST(DenseSlot, OnceAssignedNoColumnIsAssignedAsMissing) {
  Arena arena;
  auto table = SlotTable::Make(Dense(50, OptimizerKind::kAdagrad), SlotId{0}, 1, arena);
  const std::vector<float> threes(50, 3.0f), fives(50, 5.0f);
  table->AssignMissing({}, Bytes(threes), {}, 1);  // state alone makes no slot assigned
  EXPECT_FALSE(table->assigned());
  table->AssignMissing({}, Bytes(threes), {}, 0);
  EXPECT_TRUE(table->assigned());
  for (uint8_t column : {uint8_t{0}, uint8_t{1}, kStepColumn})
    table->AssignMissing({}, Bytes(fives), {}, column);
  ExpectSameBits(ReadFloats(*table, {}, 0), threes);
  ExpectSameBits(ReadFloats(*table, {}, 1), threes);
  ExpectSameBits(ReadFloats(*table, {}, kStepColumn), std::vector<float>(50, 0.0f));
}

TEST(DenseSlot, StateWeighsOnceItIsThere) {
  Arena arena;
  auto table = SlotTable::Make(Dense(100'000, OptimizerKind::kAdagrad), SlotId{0}, 1, arena);
  EXPECT_EQ(table->content_bytes(), 400'000u);
  table->Apply({}, Bytes(std::vector<float>(100'000)), {}, {.lr = 0.1});
  EXPECT_GE(table->content_bytes(), 800'000u);
}

}  // namespace
}  // namespace cairn::table

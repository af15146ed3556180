// A sparse table's slot against a plain map: the same operations, one element at a time, must give
// the same bits, async and sync, float and int64.
#include "table/slot_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "table/initial_value.h"
#include "table/slot_table_testing.h"

namespace cairn::table {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// What a sparse table should hold, row by row.
struct Model {
  wire::TableInfo info;
  std::map<RowKey, std::vector<float>> rows, staged;
  std::vector<float> Initial(RowKey key) const {
    std::vector<float> row(info.spec.dim);
    InitialValue(info.spec.init, info.id, ElementType::kFloat32)
        .FillRow(key, row.size(), reinterpret_cast<std::byte*>(row.data()));
    return row;
  }
  void Update(RowKey key, const float* g, const Hyper& h, float divisor, float scale = 1) {
    auto& row = rows.try_emplace(key, Initial(key)).first->second;
    const auto lr = static_cast<float>(h.lr), decay = static_cast<float>(h.weight_decay);
    const bool turned = (info.spec.optimizer_flags & kMaximize) != 0;
    for (size_t c = 0; c < row.size(); ++c) {
      if (info.spec.optimizer == OptimizerKind::kSum) {
        row[c] += g[c] * scale;
      } else {
        const float mean = g[c] / divisor * scale;
        row[c] -= lr * ((turned ? -mean : mean) + decay * row[c]);
      }
    }
  }
  void Stage(RowKey key, const float* g, float factor) {
    const auto [it, fresh] = staged.try_emplace(key, info.spec.dim, 0.0f);
    for (size_t c = 0; c < it->second.size(); ++c)
      it->second[c] = fresh ? factor * g[c] : it->second[c] + factor * g[c];
  }
  std::vector<float> Read(RowKey key) const {
    const auto it = rows.find(key);
    return it == rows.end() ? Initial(key) : it->second;
  }
};

struct Batch {
  std::vector<RowKey> keys;
  std::vector<float> values;
};
Batch RandomBatch(Random& random, const std::vector<RowKey>& pool, size_t dim) {
  Batch batch;
  const size_t n = random.Below(random.Below(4) == 0 ? 400 : 40);
  for (size_t i = 0; i < n; ++i) batch.keys.push_back(pool[random.Below(pool.size())]);
  if (n > 3) batch.keys[1] = batch.keys[0];  // repeats, near and far
  for (size_t i = 0; i < n * dim; ++i)
    batch.values.push_back(static_cast<float>(random.Between(-999, 999)) * 0.37f);
  return batch;
}
void ExpectRows(const SlotTable& table, const Model& model, const std::vector<RowKey>& pool) {
  ASSERT_EQ(table.rows(), model.rows.size());
  const auto all = ReadFloats(table, pool);
  const size_t dim = model.info.spec.dim;
  for (size_t i = 0; i < pool.size(); ++i)
    ExpectSameBits(std::span(all).subspan(i * dim, dim), model.Read(pool[i]));
  size_t seen = 0;
  table.ForEach([&](RowKey key, std::span<const std::byte> row) {
    ++seen;
    ASSERT_TRUE(model.rows.contains(key));
    ASSERT_EQ(0, std::memcmp(row.data(), model.rows.at(key).data(), row.size()));
  });
  EXPECT_EQ(seen, model.rows.size());
}

TEST(SparseSlot, AsyncAgreesWithAMap) {
  for (OptimizerKind optimizer : {OptimizerKind::kSum, OptimizerKind::kSgd}) {
    for (uint32_t dim : {1, 3, 4, 8, 16, 17, 32, 64, 100}) {
      SCOPED_TRACE(testing::Message() << "dim " << dim);
      Random random(dim);
      Arena arena;
      Model model{Sparse(dim, optimizer)};
      const SlotId slot{1};
      auto table = SlotTable::Make(model.info, slot, kSlots, arena);
      const auto pool = KeysOf(slot, 3000);
      for (int step = 0; step < 60; ++step) {
        const Batch b = RandomBatch(random, pool, dim);
        const Hyper hyper{.lr = 0.1 + 0.01 * step, .weight_decay = 0.02};
        ASSERT_TRUE(table->Check(b.keys, Bytes(b.values), {}).ok());
        table->Apply(b.keys, Bytes(b.values), {}, hyper);
        for (size_t i = 0; i < b.keys.size(); ++i) model.Update(b.keys[i], &b.values[i * dim], hyper, 1);
      }
      ExpectRows(*table, model, pool);
    }
  }
}

void CompareRounds(uint32_t dim, OptimizerKind optimizer, uint32_t flags) {
  SCOPED_TRACE(testing::Message() << "dim " << dim << ", flags " << flags);
  Random random(dim + 77);
  Arena arena;
  Model model{Sparse(dim, optimizer)};
  model.info.spec.optimizer_flags = flags;
  const SlotId slot{2};
  auto table = SlotTable::Make(model.info, slot, kSlots, arena);
  const auto pool = KeysOf(slot, 900);
  for (int round = 0; round < 40; ++round) {
    const Hyper hyper{.lr = 0.05, .weight_decay = 0.1};
    const size_t workers = random.Below(5);
    double divisor = 0.5;
    EXPECT_FALSE(table->staged());
    for (size_t w = 0; w < workers; ++w) {
      const double weight = w % 2 == 0 ? 1.0 : 2.5;
      divisor += weight;
      const Batch b = RandomBatch(random, pool, dim);
      table->Stage(b.keys, Bytes(b.values), {}, weight);
      EXPECT_TRUE(table->staged());
      for (size_t i = 0; i < b.keys.size(); ++i)
        model.Stage(b.keys[i], &b.values[i * dim], static_cast<float>(weight));
    }
    double squares = 0;
    for (const auto& [key, sum] : model.staged) {
      for (float x : sum) {
        const double mean = x / static_cast<float>(divisor);
        squares += mean * mean;
      }
    }
    EXPECT_NEAR(table->ReportStaged(divisor).sum_squares, squares, 1e-9 * squares);
    EXPECT_TRUE(table->ReportStaged(divisor).finite);
    if (round % 7 == 3) {
      table->DropStaged();
    } else {
      const double scale = round % 3 == 0 ? 0.3 : 1.0;
      table->ApplyStaged(hyper, divisor, scale);
      for (const auto& [key, sum] : model.staged)
        model.Update(key, sum.data(), hyper, static_cast<float>(divisor), static_cast<float>(scale));
    }
    model.staged.clear();
  }
  ExpectRows(*table, model, pool);
}

TEST(SparseSlot, SyncAgreesWithAMap) {
  for (uint32_t dim : {1, 5, 16}) {
    CompareRounds(dim, OptimizerKind::kSum, 0);
    CompareRounds(dim, OptimizerKind::kSgd, 0);
    CompareRounds(dim, OptimizerKind::kSgd, kMaximize);
  }
}

TEST(SparseSlot, AReportSaysWhatIsNotFinite) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(2, OptimizerKind::kSgd), SlotId{0}, kSlots, arena);
  const auto keys = KeysOf(SlotId{0}, 2);
  EXPECT_EQ(table->ReportStaged(1).sum_squares, 0);
  constexpr float kMost = std::numeric_limits<float>::max();
  table->Stage(keys, Bytes(std::vector<float>{1, 2, kMost, 0}), {}, 1);
  EXPECT_TRUE(table->ReportStaged(1).finite);
  table->Stage(keys, Bytes(std::vector<float>{0, 0, kMost, 0}), {}, 1);
  EXPECT_FALSE(table->ReportStaged(1).finite) << "the sum is beyond a float";
  table->DropStaged();
}

TEST(SparseSlot, TheFirstValueWinsElementByElement) {
  Arena arena;
  auto info = Sparse(3, OptimizerKind::kFirst, Init::Zeros());
  info.spec.element = ElementType::kInt64;
  auto table = SlotTable::Make(info, SlotId{0}, kSlots, arena);
  auto keys = KeysOf(SlotId{0}, 2);
  keys.push_back(keys[0]);  // its second row comes too late where the first had a value
  table->Apply(keys, Bytes(std::vector<int64_t>{7, 0, -1, 1, 2, 3, 9, 9, 9}), {}, {});
  table->Apply(keys, Bytes(std::vector<int64_t>(9, 55)), {}, {});
  std::vector<int64_t> out(6);
  table->Read(std::span(keys).first(2), 0, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::vector<int64_t>{7, 9, -1, 1, 2, 3}));
}

TEST(SparseSlot, MasksAndStateThatIsNotThereAreRefused) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(1, OptimizerKind::kSgd), SlotId{0}, kSlots, arena);
  const auto keys = KeysOf(SlotId{0}, 1);
  const std::vector<float> value = {1};
  const std::vector<std::byte> mask(1);
  EXPECT_EQ(table->Check(keys, Bytes(value), mask).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckRead(keys, 1).code(), Code::kInvalidArgument);
  EXPECT_TRUE(table->CheckRead(keys, kStepColumn).ok());
  EXPECT_EQ(table->CheckAssign(keys, Bytes(value), mask, 0).code(), Code::kInvalidArgument);
  auto integers = Sparse(1, OptimizerKind::kSum, Init::Zeros());
  integers.spec.element = ElementType::kInt64;
  table = SlotTable::Make(integers, SlotId{0}, kSlots, arena);
  EXPECT_EQ(table->CheckRead(keys, kStepColumn).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckAssign(keys, Bytes(std::vector<int64_t>{1}), {}, 0).code(), Code::kInvalidArgument);
}

TEST(SparseSlot, ReadingCreatesNothing) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(16, OptimizerKind::kSgd), SlotId{0}, kSlots, arena);
  const uint64_t hash = table->Hash(), memory = table->memory_bytes();
  const auto keys = KeysOf(SlotId{0}, 100);
  const Model model{Sparse(16, OptimizerKind::kSgd)};
  const auto values = ReadFloats(*table, keys);
  for (size_t i = 0; i < keys.size(); ++i)
    ExpectSameBits(std::span(values).subspan(i * 16, 16), model.Initial(keys[i]));
  EXPECT_EQ(table->rows(), 0u);
  EXPECT_EQ(table->Hash(), hash);
  EXPECT_EQ(table->memory_bytes(), memory);
}

TEST(SparseSlot, Int64WrapsAndIgnoresTheWeight) {
  Arena arena;
  auto info = Sparse(2, OptimizerKind::kSum, Init::Constant(-5));
  info.spec.element = ElementType::kInt64;
  auto table = SlotTable::Make(info, SlotId{0}, kSlots, arena);
  const auto keys = KeysOf(SlotId{0}, 1);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  table->Apply(keys, Bytes(std::vector<int64_t>{kMax, 7}), {}, {});
  table->Stage(keys, Bytes(std::vector<int64_t>{kMax, 1}), {}, 0.25);
  table->Stage(keys, Bytes(std::vector<int64_t>{10, 1}), {}, 9);
  table->ApplyStaged({}, 0, 1);
  std::vector<int64_t> out(2);
  table->Read(keys, 0, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::vector<int64_t>{3, 4}));  // -5 + max + max + 10 wraps to 3
}

TEST(SparseSlot, CheckRefusesWrongShapesForeignKeysAndNan) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(4, OptimizerKind::kSgd), SlotId{1}, kSlots, arena);
  const auto keys = KeysOf(SlotId{1}, 3);
  const auto foreign = KeysOf(SlotId{2}, 1);
  std::vector<float> values(12, 1.0f);
  EXPECT_TRUE(table->Check(keys, Bytes(values), {}).ok());
  EXPECT_TRUE(table->Check({}, {}, {}).ok());
  EXPECT_EQ(table->Check(keys, Bytes(values).first(47), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check(keys, Bytes(values).first(32), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, Bytes(values), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check(foreign, Bytes(values).first(16), {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckRead(foreign, 0).code(), Code::kInvalidArgument);
  EXPECT_TRUE(table->CheckRead(keys, 0).ok());
  values[11] = kNotANumber;
  EXPECT_EQ(table->Check(keys, Bytes(values), {}).code(), Code::kNotFinite);
  auto allows = Sparse(4, OptimizerKind::kSgd);
  allows.spec.non_finite = NonFinitePolicy::kAllow;
  EXPECT_TRUE(SlotTable::Make(allows, SlotId{1}, kSlots, arena)->Check(keys, Bytes(values), {}).ok());
}

TEST(SparseSlot, TheHashIsOfTheContentNotOfItsHistory) {
  Arena arena;
  const auto info = Sparse(4, OptimizerKind::kSum, Init::Zeros());
  auto a = SlotTable::Make(info, SlotId{1}, kSlots, arena);
  auto b = SlotTable::Make(info, SlotId{1}, kSlots, arena);
  auto keys = KeysOf(SlotId{1}, 2000);
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::vector<float> va(4, static_cast<float>(keys[i]));
    a->Apply(std::span(keys).subspan(i, 1), Bytes(va), {}, {});
    const RowKey other = keys[keys.size() - 1 - i];
    const std::vector<float> vb(4, static_cast<float>(other));
    b->Apply(std::span(&other, 1), Bytes(vb), {}, {});
  }
  EXPECT_EQ(a->Hash(), b->Hash());
  b->Apply(std::span(keys).first(1), Bytes(std::vector<float>{0, 0, 0, 1}), {}, {});
  EXPECT_NE(a->Hash(), b->Hash());
}

TEST(SparseSlot, OverheadOfManyRowsIsWithinItsBudget) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(16, OptimizerKind::kSum, Init::Zeros()), SlotId{0}, 1, arena);
  std::vector<RowKey> keys;
  for (RowKey key = 0; key < 150'000; ++key) keys.push_back(key);
  table->Apply(keys, Bytes(std::vector<float>(keys.size() * 16, 1.0f)), {}, {});
  const double overhead = static_cast<double>(table->memory_bytes()) / static_cast<double>(keys.size()) - 64;
  EXPECT_LT(overhead, 24.0);
  EXPECT_LE(table->memory_bytes(), arena.used_bytes() + 16384);
}

}  // namespace
}  // namespace cairn::table

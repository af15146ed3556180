// SlotTable against plain maps and arrays: the same operations, one element at a time, must give
// the same bits, for dense and sparse tables, async and sync, float and int64.
#include "table/slot_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "table/arena.h"
#include "table/initial_value.h"

namespace cairn::table {
namespace {

constexpr uint32_t kSlots = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

wire::TableInfo Sparse(uint32_t dim, OptimizerKind optimizer, Init init = Init::Normal(0, 1, 5)) {
  TableSpec spec{.name = "emb", .kind = TableKind::kSparse, .optimizer = optimizer, .dim = dim, .init = init};
  return {TableId{3}, spec, ViewNumber{1}};
}
wire::TableInfo Dense(uint64_t size, OptimizerKind optimizer, Init init = Init::Uniform(-1, 1, 5)) {
  TableSpec spec{.name = "w", .optimizer = optimizer, .size = size, .init = init};
  return {TableId{2}, spec, ViewNumber{1}};
}

template <class T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}
std::vector<float> ReadFloats(const SlotTable& table, std::span<const RowKey> keys) {
  std::vector<float> out(table.ReadBytes(keys.size()) / sizeof(float));
  table.Read(keys, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
void ExpectSameBits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  if (!a.empty()) {
    ASSERT_EQ(0, std::memcmp(a.data(), b.data(), a.size_bytes()));
  }
}

// Keys of one slot: `count` of the smallest.
std::vector<RowKey> KeysOf(SlotId slot, size_t count) {
  std::vector<RowKey> keys;
  for (RowKey key = 0; keys.size() < count; ++key) {
    if (wire::SlotOfKey(key, kSlots) == slot) keys.push_back(key);
  }
  return keys;
}

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
  void Update(RowKey key, const float* g, const Hyper& h, float divisor) {
    auto& row = rows.try_emplace(key, Initial(key)).first->second;
    for (size_t c = 0; c < row.size(); ++c) {
      if (info.spec.optimizer == OptimizerKind::kSum) {
        row[c] += g[c];
      } else {
        row[c] -= h.lr * (g[c] / divisor + h.weight_decay * row[c]);
      }
    }
  }
  void Stage(RowKey key, const float* g, float weight) {
    if (info.spec.optimizer == OptimizerKind::kSum) weight = 1;
    const auto [it, fresh] = staged.try_emplace(key, info.spec.dim, 0.0f);
    for (size_t c = 0; c < it->second.size(); ++c)
      it->second[c] = fresh ? weight * g[c] : it->second[c] + weight * g[c];
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
        const Hyper hyper{.lr = 0.1f + 0.01f * static_cast<float>(step), .weight_decay = 0.02f};
        ASSERT_TRUE(table->Check(b.keys, Bytes(b.values)).ok());
        table->Apply(b.keys, Bytes(b.values), hyper);
        for (size_t i = 0; i < b.keys.size(); ++i) model.Update(b.keys[i], &b.values[i * dim], hyper, 1);
      }
      ExpectRows(*table, model, pool);
    }
  }
}

TEST(SparseSlot, SyncAgreesWithAMap) {
  for (OptimizerKind optimizer : {OptimizerKind::kSum, OptimizerKind::kSgd}) {
    for (uint32_t dim : {1, 5, 16}) {
      Random random(dim + 77);
      Arena arena;
      Model model{Sparse(dim, optimizer)};
      const SlotId slot{2};
      auto table = SlotTable::Make(model.info, slot, kSlots, arena);
      const auto pool = KeysOf(slot, 900);
      for (int round = 0; round < 40; ++round) {
        const Hyper hyper{.lr = 0.05f, .weight_decay = 0.1f};
        const size_t workers = random.Below(5);
        double divisor = 0.5;
        EXPECT_FALSE(table->staged());
        for (size_t w = 0; w < workers; ++w) {
          const double weight = w % 2 == 0 ? 1.0 : 2.5;
          divisor += weight;
          const Batch b = RandomBatch(random, pool, dim);
          table->Stage(b.keys, Bytes(b.values), weight);
          EXPECT_TRUE(table->staged());
          for (size_t i = 0; i < b.keys.size(); ++i)
            model.Stage(b.keys[i], &b.values[i * dim], static_cast<float>(weight));
        }
        if (round % 7 == 3) {
          table->DropStaged();
        } else {
          table->ApplyStaged(hyper, divisor);
          for (const auto& [key, sum] : model.staged)
            model.Update(key, sum.data(), hyper, static_cast<float>(divisor));
        }
        model.staged.clear();
      }
      ExpectRows(*table, model, pool);
    }
  }
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
  table->Apply(keys, Bytes(std::vector<int64_t>{kMax, 7}), {});
  table->Stage(keys, Bytes(std::vector<int64_t>{kMax, 1}), 0.25);
  table->Stage(keys, Bytes(std::vector<int64_t>{10, 1}), 9);
  table->ApplyStaged({}, 0);
  std::vector<int64_t> out(2);
  table->Read(keys, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::vector<int64_t>{3, 4}));  // -5 + max + max + 10 wraps to 3
}

TEST(SparseSlot, CheckRefusesWrongShapesForeignKeysAndNan) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(4, OptimizerKind::kSgd), SlotId{1}, kSlots, arena);
  const auto keys = KeysOf(SlotId{1}, 3);
  const auto foreign = KeysOf(SlotId{2}, 1);
  std::vector<float> values(12, 1.0f);
  EXPECT_TRUE(table->Check(keys, Bytes(values)).ok());
  EXPECT_TRUE(table->Check({}, {}).ok());
  EXPECT_EQ(table->Check(keys, Bytes(values).first(47)).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check(keys, Bytes(values).first(32)).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, Bytes(values)).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check(foreign, Bytes(values).first(16)).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckKeys(foreign).code(), Code::kInvalidArgument);
  EXPECT_TRUE(table->CheckKeys(keys).ok());
  values[11] = kNan;
  EXPECT_EQ(table->Check(keys, Bytes(values)).code(), Code::kNotFinite);
  auto allows = Sparse(4, OptimizerKind::kSgd);
  allows.spec.non_finite = NonFinitePolicy::kAllow;
  EXPECT_TRUE(SlotTable::Make(allows, SlotId{1}, kSlots, arena)->Check(keys, Bytes(values)).ok());
}

TEST(SparseSlot, TheHashIsOfTheContentNotOfItsHistory) {
  Arena arena;
  const auto info = Sparse(4, OptimizerKind::kSum, Init::Zeros());
  auto a = SlotTable::Make(info, SlotId{1}, kSlots, arena);
  auto b = SlotTable::Make(info, SlotId{1}, kSlots, arena);
  auto keys = KeysOf(SlotId{1}, 2000);
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::vector<float> va(4, static_cast<float>(keys[i]));
    a->Apply(std::span(keys).subspan(i, 1), Bytes(va), {});
    const RowKey other = keys[keys.size() - 1 - i];
    const std::vector<float> vb(4, static_cast<float>(other));
    b->Apply(std::span(&other, 1), Bytes(vb), {});
  }
  EXPECT_EQ(a->Hash(), b->Hash());
  b->Apply(std::span(keys).first(1), Bytes(std::vector<float>{0, 0, 0, 1}), {});
  EXPECT_NE(a->Hash(), b->Hash());
}

TEST(SparseSlot, OverheadOfManyRowsIsWithinItsBudget) {
  Arena arena;
  auto table = SlotTable::Make(Sparse(16, OptimizerKind::kSum, Init::Zeros()), SlotId{0}, 1, arena);
  std::vector<RowKey> keys;
  for (RowKey key = 0; key < 150'000; ++key) keys.push_back(key);
  table->Apply(keys, Bytes(std::vector<float>(keys.size() * 16, 1.0f)), {});
  const double overhead = static_cast<double>(table->memory_bytes()) / static_cast<double>(keys.size()) - 64;
  EXPECT_LT(overhead, 24.0);
  EXPECT_LE(table->memory_bytes(), arena.used_bytes() + 16384);
}

// ---- dense ----

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
    const Hyper h{.lr = 0.3f, .weight_decay = 0.01f};
    const auto gradient = [&] {
      std::vector<float> g(w.size());
      for (float& x : g) x = static_cast<float>(random.Between(-999, 999)) * 0.01f;
      return g;
    };
    const auto g = gradient();
    ASSERT_TRUE(table->Check({}, Bytes(g)).ok());
    table->Apply({}, Bytes(g), h);
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] = optimizer == OptimizerKind::kSum ? w[i] + g[i] : w[i] - h.lr * (g[i] + h.weight_decay * w[i]);
    }
    for (int round = 0; round < 3; ++round) {
      const auto a = gradient(), b = gradient();
      table->Stage({}, Bytes(a), 1.0);
      table->Stage({}, Bytes(b), 0.5);
      table->ApplyStaged(h, 1.5);
      EXPECT_FALSE(table->staged());
      for (size_t i = 0; i < w.size(); ++i) {
        w[i] = optimizer == OptimizerKind::kSum
                   ? w[i] + (a[i] + b[i])
                   : w[i] - h.lr * ((a[i] + 0.5f * b[i]) / 1.5f + h.weight_decay * w[i]);
      }
    }
    table->Stage({}, Bytes(g), 1.0);
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
  EXPECT_TRUE(table->Check({}, Bytes(g)).ok());
  EXPECT_EQ(table->Check(keys, Bytes(g)).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckKeys(keys).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, Bytes(g).first(396)).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, {}).code(), Code::kInvalidArgument);
  g[99] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(table->Check({}, Bytes(g)).code(), Code::kNotFinite);
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
    ASSERT_TRUE(table->Check({}, Bytes(g)).ok());
    table->Apply({}, Bytes(g), {});
    table->Stage({}, Bytes(g), 3.0);
    table->Stage({}, Bytes(g), 3.0);
    EXPECT_TRUE(table->staged());
    table->ApplyStaged({}, 0);
    std::vector<int64_t> out(table->rows());
    ASSERT_EQ(table->ReadBytes(0), out.size() * 8);
    table->Read({}, reinterpret_cast<std::byte*>(out.data()));
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

// A weight so small that it is no float must not bring the server down, nor make NaN.
TEST(SlotTable, ADivisorBelowAnyFloatAppliesNothing) {
  Arena arena;
  auto dense = SlotTable::Make(Dense(10, OptimizerKind::kSgd), SlotId{0}, 1, arena);
  const auto before = ReadFloats(*dense, {});
  dense->Stage({}, Bytes(std::vector<float>(10, 1.0f)), 1e-60);
  dense->ApplyStaged({}, 1e-60);
  ExpectSameBits(ReadFloats(*dense, {}), before);
  auto sparse = SlotTable::Make(Sparse(2, OptimizerKind::kSgd), SlotId{0}, 1, arena);
  const std::vector<RowKey> keys = {5};
  sparse->Stage(keys, Bytes(std::vector<float>{1, 1}), 1e-60);
  sparse->ApplyStaged({}, 1e-60);
  EXPECT_EQ(sparse->rows(), 0u);
  EXPECT_FALSE(sparse->staged());
}

}  // namespace
}  // namespace cairn::table

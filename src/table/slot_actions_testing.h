// For tests that compare slot tables: every kind of table there is, random operations that are done
// to several tables alike, and the comparison of all that can be seen of two.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/random.h"
#include "table/slot_table_testing.h"

namespace cairn::table {

struct TableCase {
  std::string name;
  wire::TableInfo info;
};

// Dense ones of `size` elements, with and without segments, and sparse ones.
inline std::vector<TableCase> EveryTable(uint64_t size) {
  using enum OptimizerKind;
  std::vector<TableCase> cases;
  const auto add = [&](std::string name, wire::TableInfo info, uint32_t flags = 0, float state = 0) {
    info.spec.optimizer_flags = flags;
    info.spec.initial_state = state;
    if (info.spec.optimizer == kMean) info.spec.mode = Mode::kSync;
    cases.push_back({std::move(name), std::move(info)});
  };
  const auto integers = [](wire::TableInfo info) {
    info.spec.element = ElementType::kInt64;
    info.spec.init = Init::Constant(-3);
    return info;
  };
  for (const bool cut : {false, true}) {
    const auto dense = [&](OptimizerKind kind) {
      wire::TableInfo info = Dense(size, kind);
      if (!cut) return info;
      for (uint64_t end = 1; end < size; end += 1 + end / 2) info.spec.segments.push_back(end);
      info.spec.segments.push_back(size);
      return info;
    };
    const std::string prefix = cut ? "dense with segments, " : "dense, ";
    add(prefix + "sum", dense(kSum));
    add(prefix + "sum of int64", integers(dense(kSum)));
    add(prefix + "first", integers(dense(kFirst)));
    add(prefix + "mean", dense(kMean));
    add(prefix + "sgd", dense(kSgd));
    add(prefix + "sgd with momentum", dense(kSgd), kWithMomentum | kNesterov);
    add(prefix + "adagrad", dense(kAdagrad), 0, 0.25f);
    add(prefix + "adam", dense(kAdam), kAmsgrad);
    add(prefix + "adamw", dense(kAdamW), kMaximize);
    add(prefix + "rmsprop", dense(kRmsprop), kWithMomentum | kCentered);
    add(prefix + "ftrl", dense(kFtrl), 0, 0.125f);
  }
  for (const uint32_t dim : {1u, 3u, 16u}) {
    const std::string prefix = "sparse of dim " + std::to_string(dim) + ", ";
    add(prefix + "sum", Sparse(dim, kSum));
    add(prefix + "sum of int64", integers(Sparse(dim, kSum)));
    add(prefix + "first", integers(Sparse(dim, kFirst)));
    add(prefix + "sgd", Sparse(dim, kSgd), kMaximize);
    add(prefix + "adagrad", Sparse(dim, kAdagrad), 0, 0.25f);
    add(prefix + "sparse adam", Sparse(dim, kSparseAdam));
    add(prefix + "row-wise adagrad", Sparse(dim, kRowwiseAdagrad), 0, 0.5f);
    add(prefix + "ftrl", Sparse(dim, kFtrl), 0, 0.125f);
  }
  for (const Storage storage : {Storage::kBfloat16, Storage::kFloat16}) {
    const bool brain = storage == Storage::kBfloat16;
    const auto narrow = [&](OptimizerKind kind) {
      wire::TableInfo info = Sparse(brain ? 3 : 16, kind);
      info.spec.storage = storage;
      return info;
    };
    const std::string prefix = brain ? "sparse of bfloat16, " : "sparse of float16, ";
    add(prefix + "sum", narrow(kSum));
    add(prefix + "sgd", narrow(kSgd), kMaximize);
    add(prefix + "adagrad", narrow(kAdagrad), 0, 0.25f);
    add(prefix + "sparse adam", narrow(kSparseAdam));
    add(prefix + "row-wise adagrad", narrow(kRowwiseAdagrad), 0, 0.5f);
    add(prefix + "ftrl", narrow(kFtrl), 0, 0.125f);
  }
  return cases;
}

// What is done to tables: random, and the same to each of them.
class Actions {
 public:
  Actions(const wire::TableInfo& info, SlotId slot, uint64_t seed)
      : spec_(info.spec), random_(seed), pool_(KeysOf(slot, 900)) {}

  bool sparse() const { return spec_.kind == TableKind::kSparse; }
  const std::vector<RowKey>& pool() const { return pool_; }
  std::vector<uint8_t> columns() const {
    std::vector<uint8_t> columns = {0};
    if (spec_.element == ElementType::kInt64) return columns;
    for (uint8_t c = 1; c <= StateColumns(spec_.optimizer, spec_.optimizer_flags); ++c) columns.push_back(c);
    columns.push_back(kStepColumn);
    return columns;
  }

  void Do(const std::vector<SlotTable*>& tables) {
    const bool integers = spec_.element == ElementType::kInt64;
    switch (random_.Below(8)) {
      case 0:
        if (!integers) Assign(tables, false);
        break;
      case 1:
        if (!integers) Assign(tables, true);
        break;
      case 2:
      case 3: Stage(tables); break;
      case 4: Close(tables); break;
      case 5: {
        const Hyper hyper{.step = random_.Below(3)};
        for (SlotTable* table : tables) table->CountRound(hyper);
        break;
      }
      default: Apply(tables);
    }
  }
  void Stage(const std::vector<SlotTable*>& tables) {
    if (spec_.optimizer == OptimizerKind::kFirst) return;
    const Push push = RandomPush(*tables[0]);
    const double factor = random_.Below(2) == 0 ? 1.0 : 2.25;
    for (SlotTable* table : tables) table->Stage(push.keys, push.values, push.mask, factor);
  }
  // The end of a round, in one of three ways.
  void Close(const std::vector<SlotTable*>& tables) {
    const Hyper hyper = NextHyper();
    const uint64_t how = random_.Below(4);
    const auto all = columns();
    const uint8_t column = all[random_.Below(all.size())];
    for (SlotTable* table : tables) {
      if (how == 0) {
        table->DropStaged();
      } else if (how == 1 && !sparse() && spec_.element == ElementType::kFloat32) {
        table->AssignStaged(column, 3.25);
      } else {
        table->ApplyStaged(hyper, 3.25, 0.7);
        table->CountRound(hyper);
      }
    }
  }

 private:
  struct Push {
    std::vector<RowKey> keys;
    std::vector<std::byte> values;
    std::vector<std::byte> mask;
  };
  Push RandomPush(const SlotTable& table) {
    Push push;
    if (sparse()) {
      const size_t count = random_.Below(80);
      for (size_t i = 0; i < count; ++i) push.keys.push_back(pool_[random_.Below(pool_.size())]);
    } else if (const size_t segments = std::max<size_t>(1, spec_.segments.size()); random_.Below(3) > 0) {
      push.mask.resize((segments + 7) / 8);
      for (size_t s = 0; s < segments; ++s) {
        if (random_.Below(2) == 0) push.mask[s / 8] |= std::byte{1} << (s % 8);
      }
    }
    push.values.resize(table.ReadBytes(push.keys.size(), 0));
    if (spec_.element == ElementType::kInt64) {
      for (std::byte& b : push.values) b = static_cast<std::byte>(random_.Below(256));
    } else {
      const auto floats = RandomFloats(random_, push.values.size() / sizeof(float));
      if (!floats.empty()) std::memcpy(push.values.data(), floats.data(), push.values.size());
    }
    return push;
  }
  Hyper NextHyper() {
    return {.lr = 0.05,
            .weight_decay = 0.01,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .eps = 1e-8,
            .dampening = 0.1,
            .step = ++step_};
  }
  void Apply(const std::vector<SlotTable*>& tables) {
    if (spec_.optimizer == OptimizerKind::kMean) return;
    const Push push = RandomPush(*tables[0]);
    const Hyper hyper = NextHyper();
    for (SlotTable* table : tables) table->Apply(push.keys, push.values, push.mask, hyper);
  }
  void Assign(const std::vector<SlotTable*>& tables, bool missing) {
    const Push push = RandomPush(*tables[0]);
    const auto all = columns();
    const uint8_t column = all[random_.Below(all.size())];
    for (SlotTable* table : tables) {
      if (missing) {
        table->AssignMissing(push.keys, push.values, push.mask, column);
      } else {
        table->Assign(push.keys, push.values, push.mask, column);
      }
    }
  }

  const TableSpec spec_;
  Random random_;
  const std::vector<RowKey> pool_;
  uint64_t step_ = 0;
};

inline std::vector<std::byte> ReadColumn(const SlotTable& table, std::span<const RowKey> keys,
                                         uint8_t column) {
  std::vector<std::byte> out(table.ReadBytes(keys.size(), column));
  table.Read(keys, column, out.data());
  return out;
}
inline std::vector<RowKey> SortedKeys(const SlotTable& table) {
  std::vector<RowKey> keys(table.rows());
  table.Read({}, kKeyColumn, reinterpret_cast<std::byte*>(keys.data()));
  std::ranges::sort(keys);
  return keys;
}
inline void ExpectAlike(const SlotTable& a, const SlotTable& b, const Actions& actions) {
  ASSERT_EQ(a.rows(), b.rows());
  ASSERT_EQ(a.assigned(), b.assigned());
  ASSERT_EQ(a.staged(), b.staged());
  const auto keys = actions.sparse() ? actions.pool() : std::vector<RowKey>{};
  for (const uint8_t column : actions.columns())
    ASSERT_EQ(ReadColumn(a, keys, column), ReadColumn(b, keys, column)) << "column " << int{column};
  if (actions.sparse()) {
    ASSERT_EQ(SortedKeys(a), SortedKeys(b));
  }
  ASSERT_EQ(a.Hash(), b.Hash());
  const double of_a = a.ReportStaged(1.75).sum_squares, of_b = b.ReportStaged(1.75).sum_squares;
  ASSERT_EQ(std::bit_cast<uint64_t>(of_a), std::bit_cast<uint64_t>(of_b)) << of_a << ", " << of_b;
}

}  // namespace cairn::table

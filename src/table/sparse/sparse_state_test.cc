// Rows with optimizer state, and rows that are assigned: against the slow reference of the
// optimizers, one row at a time, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "optimizer/update_reference.h"
#include "table/initial_value.h"
#include "table/slot_table_testing.h"

namespace cairn::table {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const SlotId kSlot{1};

struct Case {
  const char* name;
  OptimizerKind kind;
  Hyper hyper;
  float initial_state = 0;
};
std::vector<Case> Cases() {
  using enum OptimizerKind;
  return {{"sgd", kSgd, {.lr = 0.1, .weight_decay = 0.02}},
          {"adagrad", kAdagrad, {.lr = 0.1, .eps = 1e-10, .dampening = 0.1}, 0.25f},
          {"sparse_adam", kSparseAdam, {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
          {"rowwise_adagrad", kRowwiseAdagrad, {.lr = 0.1, .eps = 1e-8}, 0.5f},
          {"ftrl", kFtrl, {.lr = 0.1, .weight_decay = 0.1, .beta1 = 0.3, .beta2 = 1.0}, 0.125f}};
}
wire::TableInfo TableOf(const Case& c, uint32_t dim, uint32_t flags = 0) {
  wire::TableInfo info = Sparse(dim, c.kind);
  info.spec.initial_state = c.initial_state;
  info.spec.optimizer_flags = flags;
  return info;
}

// What the table should hold.
struct StateModel {
  struct Row {
    std::vector<optimizer::ReferenceElement> elements;
    float row_sum = 0;  // kRowwiseAdagrad
  };
  wire::TableInfo info;
  std::map<RowKey, Row> rows = {};

  Row Initial(RowKey key) const {
    std::vector<float> values(info.spec.dim);
    InitialValue(info.spec.init, info.id, ElementType::kFloat32)
        .FillRow(key, values.size(), reinterpret_cast<std::byte*>(values.data()));
    Row row;
    const bool ftrl = info.spec.optimizer == OptimizerKind::kFtrl;
    for (float w : values) {
      row.elements.push_back({w, {info.spec.initial_state, info.spec.initial_state}});
      if (ftrl) row.elements.back().state[0] = 0;
    }
    row.row_sum = info.spec.initial_state;
    return row;
  }
  Row& Find(RowKey key) { return rows.try_emplace(key, Initial(key)).first->second; }
  void Update(RowKey key, const float* g, const Hyper& hyper, double divisor, double scale) {
    Row& row = Find(key);
    std::vector<float> seen;
    for (size_t i = 0; i < row.elements.size(); ++i)
      seen.push_back(optimizer::ReferenceGradient(g[i], divisor, scale));
    const uint64_t step = hyper.step == 0 ? 1 : hyper.step;
    if (info.spec.optimizer == OptimizerKind::kRowwiseAdagrad) {
      std::vector<float> w;
      for (const auto& e : row.elements) w.push_back(e.w);
      optimizer::ReferenceRowwiseAdagrad(info.spec.optimizer_flags, hyper, seen, w, row.row_sum);
      for (size_t i = 0; i < w.size(); ++i) row.elements[i].w = w[i];
      return;
    }
    for (size_t i = 0; i < row.elements.size(); ++i) {
      optimizer::ReferenceUpdate(info.spec.optimizer, info.spec.optimizer_flags, hyper, step, seen[i],
                                 row.elements[i]);
    }
  }
  std::vector<float> Read(RowKey key, uint8_t column) const {
    const auto it = rows.find(key);
    const Row row = it == rows.end() ? Initial(key) : it->second;
    std::vector<float> out;
    for (const auto& e : row.elements) {
      const bool one_a_row = info.spec.optimizer == OptimizerKind::kRowwiseAdagrad;
      out.push_back(column == 0 ? e.w : one_a_row ? row.row_sum : e.state[column - 1]);
    }
    return out;
  }
};

void ExpectEverything(const SlotTable& table, const StateModel& model, const std::vector<RowKey>& pool) {
  ASSERT_EQ(table.rows(), model.rows.size());
  const size_t dim = model.info.spec.dim;
  const uint32_t columns = StateColumns(model.info.spec.optimizer, 0);
  for (uint8_t column = 0; column <= columns; ++column) {
    SCOPED_TRACE(testing::Message() << "column " << int{column});
    ASSERT_TRUE(table.CheckRead(pool, column).ok());
    const auto all = ReadFloats(table, pool, column);
    ASSERT_EQ(all.size(), pool.size() * dim);
    for (size_t i = 0; i < pool.size(); ++i)
      ExpectSameBits(std::span(all).subspan(i * dim, dim), model.Read(pool[i], column));
  }
  EXPECT_EQ(table.CheckRead(pool, static_cast<uint8_t>(columns + 1)).code(), Code::kInvalidArgument);
}

std::vector<RowKey> SomeOf(Random& random, const std::vector<RowKey>& pool, size_t most) {
  std::vector<RowKey> keys;
  const size_t count = random.Below(most + 1);
  for (size_t i = 0; i < count; ++i) keys.push_back(pool[random.Below(pool.size())]);
  return keys;
}

TEST(SparseState, AsyncAgreesWithTheReference) {
  for (const Case& c : Cases()) {
    for (uint32_t dim : {1, 3, 4, 16, 17}) {
      for (uint32_t flags : {0u, uint32_t{kMaximize}}) {
        SCOPED_TRACE(testing::Message() << c.name << ", dim " << dim << ", flags " << flags);
        Random random(dim + flags);
        Arena arena;
        StateModel model{TableOf(c, dim, flags)};
        auto table = SlotTable::Make(model.info, kSlot, kSlots, arena);
        const auto pool = KeysOf(kSlot, 700);
        for (uint64_t step = 0; step < 25; ++step) {
          const auto keys = SomeOf(random, pool, 60);
          const auto values = RandomFloats(random, keys.size() * dim);
          Hyper hyper = c.hyper;
          hyper.step = step;  // 0 counts as 1
          table->Apply(keys, Bytes(values), {}, hyper);
          for (size_t i = 0; i < keys.size(); ++i) model.Update(keys[i], &values[i * dim], hyper, 1, 1);
        }
        ExpectEverything(*table, model, pool);
      }
    }
  }
}

TEST(SparseState, RoundsAgreeWithTheReference) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    constexpr uint32_t kDim = 5;
    Random random(9);
    Arena arena;
    StateModel model{TableOf(c, kDim)};
    auto table = SlotTable::Make(model.info, kSlot, kSlots, arena);
    const auto pool = KeysOf(kSlot, 300);
    for (uint64_t round = 0; round < 20; ++round) {
      // Two workers with rows of their own and rows that both have.
      std::map<RowKey, std::vector<float>> sums;
      for (const float weight : {1.0f, 2.5f}) {
        auto keys = SomeOf(random, pool, 40);
        std::sort(keys.begin(), keys.end());
        keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
        const auto values = RandomFloats(random, keys.size() * kDim);
        table->Stage(keys, Bytes(values), {}, weight);
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto [it, fresh] = sums.try_emplace(keys[i], kDim, 0.0f);
          for (size_t d = 0; d < kDim; ++d) {
            const float given = weight == 1.0f ? values[i * kDim + d] : weight * values[i * kDim + d];
            it->second[d] = fresh ? given : it->second[d] + given;
          }
        }
      }
      Hyper hyper = c.hyper;
      hyper.step = round + 1;
      const double scale = round % 3 == 0 ? 0.3 : 1.0;
      table->ApplyStaged(hyper, 3.5, scale);
      for (const auto& [key, sum] : sums) model.Update(key, sum.data(), hyper, 3.5, scale);
    }
    ExpectEverything(*table, model, pool);
  }
}

TEST(SparseState, TheSlotRemembersTheStep) {
  Arena arena;
  auto table = SlotTable::Make(TableOf(Cases()[2], 2), kSlot, kSlots, arena);
  const auto keys = KeysOf(kSlot, 2);
  const auto step = [&] {
    const auto read = ReadFloats(*table, keys, kStepColumn);
    EXPECT_EQ(read.size(), 4u);
    EXPECT_EQ(std::count(read.begin(), read.end(), read[0]), 4);
    return read[0];
  };
  const std::vector<float> values(4, 1.0f);
  EXPECT_EQ(step(), 0.0f);
  const auto push = [&](uint64_t number) {
    table->Apply(keys, Bytes(values), {}, {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.9, .step = number});
  };
  push(7);
  push(3);  // of a worker that is behind
  EXPECT_EQ(step(), 7.0f);
  table->Stage(keys, Bytes(values), {}, 1);
  table->ApplyStaged({.lr = 0.1, .beta1 = 0.9, .beta2 = 0.9, .step = 9}, 1, 1);
  EXPECT_EQ(step(), 7.0f) << "a round is counted by CountRound, whether it has rows here or not";
  table->CountRound({.step = 5});
  EXPECT_EQ(step(), 5.0f);
  table->Assign(keys, Bytes(values), {}, 0);
  EXPECT_EQ(step(), 5.0f);
}

TEST(SparseState, AnAssignReplacesValuesAndLeavesStateAlone) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    Arena arena;
    StateModel model{TableOf(c, 3)};
    auto table = SlotTable::Make(model.info, kSlot, kSlots, arena);
    auto keys = KeysOf(kSlot, 40);
    Random random(4);
    const auto first = RandomFloats(random, 20 * 3);
    table->Apply(std::span(keys).first(20), Bytes(first), {}, c.hyper);
    for (size_t i = 0; i < 20; ++i) model.Update(keys[i], &first[i * 3], c.hyper, 1, 1);
    // Rows that exist and rows that don't; the last one of a key that repeats counts.
    std::vector<RowKey> assigned(keys.begin() + 10, keys.begin() + 30);
    for (int again = 0; again < 20; ++again) assigned.push_back(keys[15]), assigned.push_back(keys[25]);
    const auto values = RandomFloats(random, assigned.size() * 3);
    ASSERT_TRUE(table->CheckAssign(assigned, Bytes(values), {}, 0).ok());
    table->Assign(assigned, Bytes(values), {}, 0);
    for (size_t i = 0; i < assigned.size(); ++i) {
      auto& row = model.Find(assigned[i]);
      for (size_t d = 0; d < 3; ++d) row.elements[d].w = values[i * 3 + d];
    }
    ExpectEverything(*table, model, keys);
    // And the optimizer goes on from there.
    const auto more = RandomFloats(random, keys.size() * 3);
    table->Apply(keys, Bytes(more), {}, c.hyper);
    for (size_t i = 0; i < keys.size(); ++i) model.Update(keys[i], &more[i * 3], c.hyper, 1, 1);
    ExpectEverything(*table, model, keys);
  }
}

TEST(SparseState, AnAssignOfStateLeavesValuesAndOtherColumnsAlone) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    Arena arena;
    const auto info = TableOf(c, 3);
    auto table = SlotTable::Make(info, kSlot, kSlots, arena);
    const auto keys = KeysOf(kSlot, 20);
    Random random(6);
    const auto first = RandomFloats(random, 10 * 3);
    table->Apply(std::span(keys).first(10), Bytes(first), {}, c.hyper);
    const uint32_t columns = StateColumns(info.spec.optimizer, info.spec.optimizer_flags);
    const bool one_a_row = info.spec.optimizer == OptimizerKind::kRowwiseAdagrad;
    std::vector<std::vector<float>> expected;
    for (uint8_t column = 0; column <= columns; ++column)
      expected.push_back(ReadFloats(*table, keys, column));
    const auto step = ReadFloats(*table, keys, kStepColumn);
    for (uint8_t column = 1; column <= columns; ++column) {
      auto given = RandomFloats(random, keys.size() * 3);  // of rows that exist and of rows that don't
      if (one_a_row)
        for (size_t i = 0; i < given.size(); ++i) given[i] = given[i - i % 3];
      ASSERT_TRUE(table->CheckAssign(keys, Bytes(given), {}, column).ok());
      table->Assign(keys, Bytes(given), {}, column);
      expected[column] = given;
      for (uint8_t any = 0; any <= columns; ++any) {
        SCOPED_TRACE(int{any});
        ExpectSameBits(ReadFloats(*table, keys, any), expected[any]);
      }
      EXPECT_EQ(table->rows(), keys.size());
    }
    ExpectSameBits(ReadFloats(*table, keys, kStepColumn), step);
    EXPECT_EQ(table->CheckAssign(keys, Bytes(first), {}, static_cast<uint8_t>(columns + 1)).code(),
              Code::kInvalidArgument);
  }
}

TEST(SparseState, AnAssignedStepMakesNoRow) {
  Arena arena;
  auto table = SlotTable::Make(TableOf(Cases()[1], 3), kSlot, kSlots, arena);
  const auto keys = KeysOf(kSlot, 2);
  const auto step = [&] { return ReadFloats(*table, keys, kStepColumn)[0]; };
  table->CountRound({.step = 9});
  const std::vector<float> four(6, 4.0f), seven(6, 7.0f);
  ASSERT_TRUE(table->CheckAssign(keys, Bytes(four), {}, kStepColumn).ok());
  const uint64_t before = table->Hash();
  table->Assign(keys, Bytes(four), {}, kStepColumn);
  EXPECT_EQ(step(), 4.0f) << "also a lower one: what is loaded counts";
  EXPECT_NE(table->Hash(), before) << "copies that differ in it are noticed";
  table->AssignMissing(keys, Bytes(seven), {}, kStepColumn);
  EXPECT_EQ(step(), 4.0f);
  table->Assign(keys, Bytes(std::vector<float>(6, 0.0f)), {}, kStepColumn);
  table->AssignMissing(keys, Bytes(seven), {}, kStepColumn);
  EXPECT_EQ(step(), 7.0f);
  EXPECT_EQ(table->rows(), 0u);
}

TEST(SparseState, AssigningOnceMakesRowsAndChangesNone) {
  const Case c = Cases()[1];
  Arena arena;
  StateModel model{TableOf(c, 3)};
  auto table = SlotTable::Make(model.info, kSlot, kSlots, arena);
  const auto keys = KeysOf(kSlot, 3000);
  Random random(5);
  std::vector<RowKey> existing;
  for (size_t i = 0; i < keys.size(); i += 2) existing.push_back(keys[i]);
  const auto first = RandomFloats(random, existing.size() * 3);
  table->Apply(existing, Bytes(first), {}, c.hyper);
  for (size_t i = 0; i < existing.size(); ++i) model.Update(existing[i], &first[i * 3], c.hyper, 1, 1);
  const StateModel before = model;
  std::vector<RowKey> assigned(keys.begin(), keys.begin() + 2000);
  assigned.push_back(keys[1]);  // was missing, and repeats: the last one counts
  assigned.push_back(keys[0]);
  const auto values = RandomFloats(random, assigned.size() * 3);
  table->AssignMissing(assigned, Bytes(values), {}, 0);
  for (size_t i = 0; i < assigned.size(); ++i) {
    if (before.rows.contains(assigned[i])) continue;
    for (size_t d = 0; d < 3; ++d) model.Find(assigned[i]).elements[d].w = values[i * 3 + d];
  }
  ExpectEverything(*table, model, keys);
  const uint64_t hash = table->Hash();
  table->AssignMissing(assigned, Bytes(RandomFloats(random, assigned.size() * 3)), {}, 0);
  EXPECT_EQ(table->Hash(), hash);
}

TEST(SparseState, AnAssignIsCheckedAsAPushIs) {
  Arena arena;
  auto table = SlotTable::Make(TableOf(Cases()[1], 2), kSlot, kSlots, arena);
  const auto keys = KeysOf(kSlot, 2);
  const std::vector<float> good = {1, 2, 3, 4}, bad = {1, 2, 3, kNan};
  EXPECT_TRUE(table->CheckAssign(keys, Bytes(good), {}, 0).ok());
  for (uint8_t column : {uint8_t{2}, kKeyColumn}) {
    const Status refused = table->CheckAssign(keys, Bytes(good), {}, column);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_NE(refused.message().find("has no column"), std::string::npos) << refused.message();
  }
  for (uint8_t column : {uint8_t{1}, kStepColumn}) {
    EXPECT_TRUE(table->CheckAssign(keys, Bytes(good), {}, column).ok());
    EXPECT_EQ(table->CheckAssign(keys, Bytes(bad), {}, column).code(), Code::kNotFinite);
  }
  EXPECT_EQ(table->CheckAssign(keys, Bytes(bad), {}, 0).code(), Code::kNotFinite);
  EXPECT_EQ(table->CheckAssign(keys, Bytes(good).first(8), {}, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->CheckAssign(KeysOf(SlotId{2}, 2), Bytes(good), {}, 0).code(), Code::kInvalidArgument);
  // Where NaN is allowed it has one pattern.
  wire::TableInfo allows = TableOf(Cases()[1], 2);
  allows.spec.non_finite = NonFinitePolicy::kAllow;
  table = SlotTable::Make(allows, kSlot, kSlots, arena);
  const std::vector<float> odd = {1, 2, 3, std::bit_cast<float>(0xFFC12345u)};
  table->Assign(keys, Bytes(odd), {}, 0);
  EXPECT_EQ(std::bit_cast<uint32_t>(ReadFloats(*table, keys)[3]), 0x7FC00000u);
}

TEST(SparseState, KeysAreThoseOfTheRowsThatExist) {
  Arena arena;
  auto table = SlotTable::Make(TableOf(Cases()[3], 2), kSlot, kSlots, arena);
  auto keys = KeysOf(kSlot, 500);
  const auto read = [&] {
    std::vector<RowKey> out(table->ReadBytes(0, kKeyColumn) / sizeof(RowKey));
    table->Read({}, kKeyColumn, reinterpret_cast<std::byte*>(out.data()));
    std::sort(out.begin(), out.end());
    return out;
  };
  EXPECT_TRUE(table->CheckRead({}, kKeyColumn).ok());
  EXPECT_EQ(table->CheckRead(keys, kKeyColumn).code(), Code::kInvalidArgument);
  EXPECT_TRUE(read().empty());
  table->Apply(std::span(keys).first(300), Bytes(std::vector<float>(600, 1.0f)), {}, {.lr = 0.1});
  ReadFloats(*table, keys);
  EXPECT_EQ(read(), std::vector<RowKey>(keys.begin(), keys.begin() + 300));
  table->AssignMissing(keys, Bytes(std::vector<float>(1000, 1.0f)), {}, 0);
  EXPECT_EQ(read(), keys);
}

TEST(SparseState, StateAndStepAreInTheHash) {
  Arena arena;
  const Case c = Cases()[3];
  const auto keys = KeysOf(kSlot, 1);
  const std::vector<float> zeros = {0, 0};
  auto a = SlotTable::Make(TableOf(c, 2), kSlot, kSlots, arena);
  auto b = SlotTable::Make(TableOf(c, 2), kSlot, kSlots, arena);
  a->Apply(keys, Bytes(std::vector<float>{1, 1}), {}, c.hyper);
  b->Apply(keys, Bytes(zeros), {}, c.hyper);
  b->Assign(keys, Bytes(ReadFloats(*a, keys)), {}, 0);
  ExpectSameBits(ReadFloats(*a, keys), ReadFloats(*b, keys));
  EXPECT_NE(a->Hash(), b->Hash());
  const uint64_t before = a->Hash();
  a->CountRound({.step = 4});
  EXPECT_NE(a->Hash(), before);
}

TEST(SparseState, RowwiseAdagradCostsOneNumberARow) {
  Arena arena;
  wire::TableInfo info = TableOf(Cases()[3], 16);
  auto table = SlotTable::Make(info, SlotId{0}, 1, arena);
  table->Apply(std::vector<RowKey>{1}, Bytes(std::vector<float>(16, 1.0f)), {}, Cases()[3].hyper);
  size_t bytes = 0;
  table->ForEach([&](RowKey, std::span<const std::byte> row) { bytes = row.size(); });
  EXPECT_EQ(bytes, 17 * sizeof(float));
}

}  // namespace
}  // namespace cairn::table

// A slot that was saved and loaded is the slot: whatever is done to both from then on, they give the
// same bits. And so are the sums of a round.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/byte_stream.h"
#include "table/slot_actions_testing.h"

namespace cairn::table {
namespace {

std::vector<std::byte> Saved(const SlotTable& table) {
  ByteWriter out;
  table.Save(out);
  return out.Take();
}
std::vector<std::byte> SavedSums(const SlotTable& table) {
  ByteWriter out;
  table.SaveStaged(out);
  return out.Take();
}

struct SlotCopy : ::testing::Test {
  Arena arena, other_arena;
  std::unique_ptr<SlotTable> Copy(const SlotTable& from, const wire::TableInfo& info, SlotId slot) {
    auto copy = SlotTable::Make(info, slot, kSlots, other_arena, SlotTable::Purpose::kToLoad);
    auto bytes = Saved(from);
    const size_t size = bytes.size();
    bytes.push_back(std::byte{7});  // what follows belongs to somebody else
    ByteReader in(bytes);
    EXPECT_TRUE(copy->Load(in));
    EXPECT_EQ(in.left(), bytes.size() - size);
    return copy;
  }
};

TEST_F(SlotCopy, ACopyGoesOnAsTheOriginal) {
  for (const uint64_t size : {1u, 40'000u}) {  // of one element: most slots have none
    for (const TableCase& c : EveryTable(size)) {
      for (const uint32_t s : {1u, 3u}) {
        SCOPED_TRACE(testing::Message() << c.name << ", size " << size << ", slot " << s);
        const SlotId slot{s};
        Actions actions(c.info, slot, size + s);
        auto a = SlotTable::Make(c.info, slot, kSlots, arena);
        auto b = Copy(*a, c.info, slot);  // of one that nothing was done to
        for (int copies = 0; copies < 4; ++copies) {
          ASSERT_NO_FATAL_FAILURE(ExpectAlike(*a, *b, actions));
          for (int i = 0; i < 25; ++i) {
            actions.Do({a.get(), b.get()});
            if (i % 8 != 0) continue;
            ASSERT_NO_FATAL_FAILURE(ExpectAlike(*a, *b, actions)) << "operation " << i;
          }
          ASSERT_NO_FATAL_FAILURE(ExpectAlike(*a, *b, actions));
          b = Copy(*a, c.info, slot);
        }
      }
    }
  }
}

TEST_F(SlotCopy, SumsOfARoundGoOnAsTheOriginals) {
  for (const TableCase& c : EveryTable(40'000)) {
    if (c.info.spec.optimizer == OptimizerKind::kFirst) continue;  // never staged
    SCOPED_TRACE(c.name);
    const SlotId slot{2};
    Actions actions(c.info, slot, 5);
    auto a = SlotTable::Make(c.info, slot, kSlots, arena);
    auto b = SlotTable::Make(c.info, slot, kSlots, other_arena);
    for (int round = 0; round < 12; ++round) {
      for (int worker = 0; worker < 1 + round % 4; ++worker) actions.Stage({a.get()});
      const auto sums = SavedSums(*a);
      ByteReader in(sums);
      ASSERT_TRUE(b->LoadStaged(in));
      ASSERT_TRUE(in.at_end());
      ASSERT_NO_FATAL_FAILURE(ExpectAlike(*a, *b, actions));
      ASSERT_EQ(SavedSums(*b), sums);
      if (round % 3 == 0) actions.Stage({a.get(), b.get()});  // a late one: both take it alike
      ASSERT_NO_FATAL_FAILURE(ExpectAlike(*a, *b, actions));
      actions.Close({a.get(), b.get()});
      ASSERT_FALSE(b->staged());
      ASSERT_NO_FATAL_FAILURE(ExpectAlike(*a, *b, actions));
    }
  }
}

TEST_F(SlotCopy, SumsOfNothingAreSumsToo) {
  for (const TableCase& c : EveryTable(1)) {
    if (c.info.spec.optimizer == OptimizerKind::kFirst) continue;
    for (uint32_t s = 0; s < kSlots; ++s) {  // dense: one of them has the element, the others have none
      SCOPED_TRACE(testing::Message() << c.name << ", slot " << s);
      auto a = SlotTable::Make(c.info, SlotId{s}, kSlots, arena);
      auto b = SlotTable::Make(c.info, SlotId{s}, kSlots, other_arena);
      const bool sparse = c.info.spec.kind == TableKind::kSparse;
      const std::vector<std::byte> values(a->ReadBytes(0, 0)), none(1);
      a->Stage({}, values, sparse ? Mask{} : Mask{none}, 1);
      const auto sums = SavedSums(*a);
      ByteReader in(sums);
      ASSERT_TRUE(b->LoadStaged(in));
      EXPECT_TRUE(b->staged());
      const uint64_t before = b->Hash();
      b->ApplyStaged({}, 1, 1);
      EXPECT_EQ(b->Hash(), before);
      EXPECT_TRUE(Copy(*a, c.info, SlotId{s})->staged());
    }
  }
}

// The report of a round is a sum of doubles: its order decides the last bits.
TEST_F(SlotCopy, TheOrderOfSumsIsThatOfTheContributionsWhateverCameBefore) {
  const wire::TableInfo info = Sparse(3, OptimizerKind::kSgd);
  const SlotId slot{0};
  auto fresh = SlotTable::Make(info, slot, kSlots, arena);
  auto used = SlotTable::Make(info, slot, kSlots, arena);
  const auto many = KeysOf(slot, 20'000);
  used->Stage(many, Bytes(std::vector<float>(many.size() * 3, 1.0f)), {}, 1);
  used->DropStaged();
  Random random(8);
  for (int round = 0; round < 5; ++round) {
    double squares = 0;
    std::vector<RowKey> keys;  // of one round none repeats
    for (size_t i = 0; i < 2000; ++i) keys.push_back(many[(random.Below(5) + i * 5) * 2]);
    const auto values = RandomFloats(random, keys.size() * 3);
    for (SlotTable* table : {fresh.get(), used.get()}) table->Stage(keys, Bytes(values), {}, 1);
    for (const float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
    EXPECT_EQ(fresh->ReportStaged(1).sum_squares, squares);
    EXPECT_EQ(used->ReportStaged(1).sum_squares, squares);
    EXPECT_EQ(SavedSums(*fresh), SavedSums(*used));
    for (SlotTable* table : {fresh.get(), used.get()}) table->DropStaged();
  }
}

TEST_F(SlotCopy, AHashIsOfContentNotOfHistory) {
  const wire::TableInfo info = Sparse(4, OptimizerKind::kAdagrad);
  const SlotId slot{1};
  auto keys = KeysOf(slot, 5000);
  Random random(3);
  auto values = RandomFloats(random, keys.size() * 4);
  auto a = SlotTable::Make(info, slot, kSlots, arena), b = SlotTable::Make(info, slot, kSlots, arena);
  a->Apply(keys, Bytes(values), {}, {.lr = 0.1, .step = 4});
  for (size_t i = keys.size(); i-- > 0;)
    b->Apply(std::span(keys).subspan(i, 1), Bytes(values).subspan(i * 16, 16), {}, {.lr = 0.1, .step = 4});
  EXPECT_EQ(a->Hash(), b->Hash());
  EXPECT_EQ(Copy(*b, info, slot)->Hash(), a->Hash());
  b->Apply({}, {}, {}, {.step = 5});
  EXPECT_NE(a->Hash(), b->Hash()) << "a later step";
}

TEST_F(SlotCopy, AHashCoversStepsAndAssignmentWithoutState) {
  wire::TableInfo info = Dense(100, OptimizerKind::kSgd, Init::Zeros());
  info.spec.segments = {50, 100};
  const std::vector<float> zeros(100);
  const auto hash_after = [&](auto act) {
    auto table = SlotTable::Make(info, SlotId{0}, 1, arena);
    act(*table);
    return table->Hash();
  };
  std::vector<uint64_t> hashes = {
      hash_after([](SlotTable&) {}), hash_after([&](SlotTable& t) { t.Assign({}, Bytes(zeros), {}, 0); }),
      hash_after([&](SlotTable& t) { t.Apply({}, Bytes(zeros), MaskOf(2, {0}), {}); }),
      hash_after([&](SlotTable& t) { t.Apply({}, Bytes(zeros), MaskOf(2, {1}), {}); }),
      hash_after([&](SlotTable& t) { t.Apply({}, Bytes(zeros), {}, {}); })};
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end());
  const wire::TableInfo rows = Sparse(2, OptimizerKind::kSum);
  auto sparse = SlotTable::Make(rows, SlotId{0}, kSlots, arena);
  const uint64_t before = sparse->Hash();
  sparse->CountRound({.step = 1});
  EXPECT_NE(sparse->Hash(), before);
}

// More rows than a segment of the index has: they are laid out at once, and growth goes on from there.
TEST_F(SlotCopy, ManyRows) {
  const wire::TableInfo info = Sparse(2, OptimizerKind::kRowwiseAdagrad);
  const SlotId slot{2};
  const auto keys = KeysOf(slot, 200'000);
  Random random(6);
  const auto values = RandomFloats(random, keys.size() * 2);
  auto a = SlotTable::Make(info, slot, kSlots, arena);
  const size_t first = 150'000;
  a->Apply(std::span(keys).first(first), Bytes(values).first(first * 8), {}, {.lr = 0.1});
  a->Stage(std::span(keys).subspan(100'000), Bytes(values).subspan(100'000 * 8), {}, 1);
  auto b = Copy(*a, info, slot);
  EXPECT_EQ(a->Hash(), b->Hash());
  EXPECT_EQ(SortedKeys(*b), SortedKeys(*a));
  EXPECT_LT(b->memory_bytes(), a->memory_bytes() * 5 / 4);
  for (SlotTable* table : {a.get(), b.get()}) {
    table->ApplyStaged({.lr = 0.1}, 1, 1);
    table->Apply(keys, Bytes(values), {}, {.lr = 0.2});
  }
  EXPECT_EQ(a->rows(), keys.size());
  EXPECT_EQ(a->Hash(), b->Hash());
  ExpectSameBits(ReadFloats(*a, keys), ReadFloats(*b, keys));
  ExpectSameBits(ReadFloats(*a, keys, 1), ReadFloats(*b, keys, 1));
}

}  // namespace
}  // namespace cairn::table

// Bytes that are not what Save or SaveStaged made: refused, or loaded as what they say, never harm.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/byte_stream.h"
#include "table/slot_actions_testing.h"

namespace cairn::table {
namespace {

const SlotId kCopiedSlot{1};
using Image = std::vector<std::byte>;

template <class T>
void Put(Image& image, size_t at, T value) {
  ASSERT_LE(at + sizeof(value), image.size());
  std::memcpy(image.data() + at, &value, sizeof(value));
}

struct SlotCopyDamage : ::testing::Test {
  // A dense table is small here and lies in one slot, or most slots would be empty.
  static std::unique_ptr<SlotTable> Make(const wire::TableInfo& info, Arena& arena) {
    if (info.spec.kind == TableKind::kDense) return SlotTable::Make(info, SlotId{0}, 1, arena);
    return SlotTable::Make(info, kCopiedSlot, kSlots, arena);
  }
  // A slot with rows or state, and sums of a round where there may be some.
  Image SomeImage(const TableCase& c) {
    Arena arena;
    Actions actions(c.info, kCopiedSlot, 17);
    auto table = Make(c.info, arena);
    for (int i = 0; i < 12; ++i) actions.Do({table.get()});
    if (!table->staged()) actions.Stage({table.get()});
    ByteWriter out;
    table->Save(out);
    return out.Take();
  }
  // Whether it was taken; then all that can be done is done.
  static bool Takes(const wire::TableInfo& info, std::span<const std::byte> image) {
    Arena arena;
    auto table = Make(info, arena);
    const uint64_t before = arena.mapped_bytes();
    ByteReader in(image);
    const bool taken = table->Load(in);
    EXPECT_LT(arena.mapped_bytes(), before + (8 << 20) + 8 * image.size());
    if (!taken) return false;
    ByteWriter again;
    table->Save(again);
    EXPECT_LE(again.size(), image.size());
    Actions actions(info, kCopiedSlot, 3);
    ExpectAlike(*table, *table, actions);
    for (int i = 0; i < 8; ++i) actions.Do({table.get()});
    actions.Close({table.get()});
    return true;
  }
};

TEST_F(SlotCopyDamage, WhatIsCutOffIsRefused) {
  for (const TableCase& c : EveryTable(300)) {
    SCOPED_TRACE(c.name);
    const Image image = SomeImage(c);
    ASSERT_TRUE(Takes(c.info, image));
    Random random(1);
    for (size_t size = 0; size < image.size(); size += size < 200 ? 1 : 1 + random.Below(60)) {
      // A copy of its own size, so that a read beyond its end is one beyond the memory.
      ASSERT_FALSE(Takes(c.info, Image(image.begin(), image.begin() + static_cast<long>(size)))) << size;
    }
    ASSERT_FALSE(Takes(c.info, std::span(image).first(image.size() - 1)));
  }
}

TEST_F(SlotCopyDamage, FlippedBitsDoNoHarm) {
  for (const TableCase& c : EveryTable(300)) {
    SCOPED_TRACE(c.name);
    const Image image = SomeImage(c);
    ASSERT_GT(image.size(), 64u);
    Random random(2);
    size_t refused = 0;
    for (size_t i = 0; i < 350; ++i) {
      Image bad = image;
      const size_t bit = i < 256 ? i : random.Below(bad.size() * 8);  // the beginning is lengths
      bad[bit / 8] ^= std::byte{1} << (bit % 8);
      if (i % 7 == 6) bad[random.Below(bad.size())] ^= static_cast<std::byte>(1 + random.Below(255));
      refused += Takes(c.info, bad) ? 0 : 1;
    }
    EXPECT_GT(refused, 20u);
  }
}

TEST_F(SlotCopyDamage, AnImageOfAnotherTableIsRefused) {
  const auto cases = EveryTable(300);
  for (const TableCase& from : cases) {
    const Image image = SomeImage(from);
    for (const TableCase& to : cases) {
      const TableSpec &a = from.info.spec, &b = to.info.spec;
      if (a.kind == b.kind) continue;
      EXPECT_FALSE(Takes(to.info, image)) << from.name << " as " << to.name;
    }
  }
  TableCase small{"", Sparse(3, OptimizerKind::kAdagrad)};
  const Image image = SomeImage(small);
  EXPECT_FALSE(Takes(Sparse(4, OptimizerKind::kAdagrad), image)) << "other rows";
  EXPECT_FALSE(Takes(Sparse(3, OptimizerKind::kSgd), image)) << "no state";
  TableCase dense{"", Dense(300, OptimizerKind::kAdam)};
  const Image array = SomeImage(dense);
  EXPECT_FALSE(Takes(Dense(900, OptimizerKind::kAdam), array));
  EXPECT_FALSE(Takes(Dense(300, OptimizerKind::kSgd), array));
}

// A slot of rows, and what stands where in it.
struct SlotCopyRows : SlotCopyDamage {
  const wire::TableInfo info = Sparse(2, OptimizerKind::kSgd);
  const std::vector<RowKey> keys = KeysOf(kCopiedSlot, 3);
  Image image;
  static constexpr size_t kStep = 0, kStaged = 8, kCount = 16, kRowBytes = 24, kKeys = 32, kRows = 56;
  static constexpr size_t kSums = 80;  // count, row bytes, keys, rows again

  void SetUp() override {
    Arena arena;
    auto table = SlotTable::Make(info, kCopiedSlot, kSlots, arena);
    table->Assign(keys, Bytes(std::vector<float>{1.f, 2.f, 3.f, 4.f, 5.f, 6.f}), {}, 0);
    table->Stage(std::span(keys).first(2), Bytes(std::vector<float>{7.f, 8.f, 9.f, 10.f}), {}, 1);
    table->CountRound({.step = 77});
    ByteWriter out;
    table->Save(out);
    image = out.Take();
  }
};

TEST_F(SlotCopyRows, TheFormat) {
  ByteWriter expected;
  expected.Put<uint64_t>(77);
  expected.Put<uint64_t>(1);
  expected.Put<uint64_t>(3);
  expected.Put<uint64_t>(8);
  for (const RowKey key : keys) expected.Put(key);
  for (const float value : {1.f, 2.f, 3.f, 4.f, 5.f, 6.f}) expected.Put(value);
  expected.Put<uint64_t>(2);
  expected.Put<uint64_t>(8);
  expected.Put(keys[0]);
  expected.Put(keys[1]);
  for (const float value : {7.f, 8.f, 9.f, 10.f}) expected.Put(value);
  EXPECT_EQ(image, expected.Take());
  EXPECT_TRUE(Takes(info, image));
}

TEST_F(SlotCopyRows, CountsThatDoNotFitAreRefused) {
  for (const size_t at : {kCount, kRowBytes, kSums, kSums + 8}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{1} << 29, uint64_t{1} << 32,
                                 uint64_t{1} << 60, uint64_t{1} << 61, uint64_t{1} << 63, ~uint64_t{0}}) {
      if (at == kSums && value <= 1) continue;  // fewer rows, and something behind them
      Image bad = image;
      Put(bad, at, value);
      EXPECT_FALSE(Takes(info, bad)) << "at " << at << ": " << value;
    }
  }
  Image bad = image;
  Put(bad, kStaged, uint64_t{2});
  EXPECT_FALSE(Takes(info, bad));
}

TEST_F(SlotCopyRows, AKeyThatRepeatsOrBelongsElsewhereIsRefused) {
  for (const size_t at : {kKeys, kKeys + 16, kSums + 16, kSums + 24}) {
    Image bad = image;
    Put(bad, at, KeysOf(SlotId{2}, 1)[0]);
    EXPECT_FALSE(Takes(info, bad)) << "of another slot, at " << at;
  }
  Image bad = image;
  Put(bad, kKeys + 16, keys[0]);
  EXPECT_FALSE(Takes(info, bad));
  bad = image;
  Put(bad, kSums + 24, keys[0]);
  EXPECT_FALSE(Takes(info, bad));
}

TEST_F(SlotCopyRows, SumsThatAreRefusedLeaveTheSlotAsItWas) {
  Arena arena;
  auto table = SlotTable::Make(info, kCopiedSlot, kSlots, arena);
  const Image sums(image.begin() + kSums, image.end());
  Image bad = sums;
  Put(bad, 24, keys[0]);
  const uint64_t before = table->Hash();
  ByteReader refused(bad);
  EXPECT_FALSE(table->LoadStaged(refused));
  EXPECT_FALSE(table->staged());
  ByteReader in(sums);
  EXPECT_TRUE(table->LoadStaged(in));
  EXPECT_EQ(table->ReportStaged(1).sum_squares, 49.0 + 64 + 81 + 100);
  EXPECT_EQ(table->Hash(), before);
}

TEST_F(SlotCopyDamage, DenseSumsThatAreRefusedLeaveNothingStaged) {
  wire::TableInfo info = Dense(12, OptimizerKind::kSgd);
  info.spec.segments = {3, 10, 12};
  Arena arena;
  auto table = SlotTable::Make(info, SlotId{0}, 1, arena);
  table->Stage({}, Bytes(std::vector<float>(12, 2.0f)), MaskOf(3, {0, 2}), 1);
  ByteWriter out;
  table->SaveStaged(out);
  table->DropStaged();
  const Image sums = out.Take();
  ASSERT_EQ(sums.size(), 8 + 3 + 5 * sizeof(float)) << "of the staged segments only";
  Image other = sums, flag = sums;
  Put(other, 0, uint64_t{2});
  Put(flag, 8, uint8_t{2});
  for (const Image& bad : {Image(sums.begin(), sums.end() - 4), other, flag}) {
    ByteReader in(bad);
    EXPECT_FALSE(table->LoadStaged(in));
    EXPECT_FALSE(table->staged());
  }
  table->Stage({}, Bytes(std::vector<float>(12, 1.0f)), MaskOf(3, {1}), 1);
  EXPECT_EQ(table->ReportStaged(1).sum_squares, 7.0) << "nothing of what was refused";
  table->DropStaged();
  ByteReader in(sums);
  EXPECT_TRUE(table->LoadStaged(in));
  EXPECT_EQ(table->ReportStaged(1).sum_squares, 20.0);
}

}  // namespace
}  // namespace cairn::table

// The index against std::unordered_map: what was inserted is found, with its row, whatever grew
// or split in between; what was not is not.
#include "table/sparse/line_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/random.h"

namespace cairn::table {
namespace {

// Both ways to look must agree.
uint32_t Find(const LineIndex& index, RowKey key) {
  const uint32_t row = index.Find(key, LineIndex::HashOf(key));
  const uint32_t in_line = index.FindInLine(key, LineIndex::HashOf(key));
  if (in_line != LineIndex::kFurther && in_line != row) ADD_FAILURE() << "key " << key;
  return row;
}
void Insert(LineIndex& index, RowKey key, uint32_t row) { index.Insert(key, LineIndex::HashOf(key), row); }

void ExpectEqual(const LineIndex& index, const std::unordered_map<RowKey, uint32_t>& model) {
  ASSERT_EQ(index.size(), model.size());
  for (const auto& [key, row] : model) ASSERT_EQ(Find(index, key), row) << key;
  size_t seen = 0;
  index.ForEach([&](RowKey key, uint32_t row) {
    auto it = model.find(key);
    ASSERT_TRUE(it != model.end()) << key;
    ASSERT_EQ(it->second, row);
    ++seen;
  });
  EXPECT_EQ(seen, model.size());
}

TEST(LineIndex, AnEmptyOneHasNothing) {
  Arena arena;
  LineIndex index(arena, 1);
  EXPECT_EQ(Find(index, 0), LineIndex::kNoRow);
  EXPECT_EQ(Find(index, ~uint64_t{0}), LineIndex::kNoRow);
  EXPECT_EQ(index.LineFor(LineIndex::HashOf(7)), nullptr);
  index.ForEach([](RowKey, uint32_t) { FAIL(); });
}

// Random operations on key spaces from tiny (nearly every find hits) to wide, sequential and
// strided keys, keys 0 and the largest.
TEST(LineIndex, AgreesWithUnorderedMap) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Arena arena;
    LineIndex index(arena, seed);
    std::unordered_map<RowKey, uint32_t> model;
    const uint64_t space = uint64_t{1} << random.Between(4, 22);
    const uint64_t stride = seed % 3 == 0 ? uint64_t{1} << random.Below(42) : 1;
    const int operations = seed % 8 == 0 ? 400'000 : 20'000;
    for (int i = 0; i < operations; ++i) {
      RowKey key = random.Below(space) * stride;
      if (random.Below(1000) == 0) key = random.Below(2) == 0 ? 0 : ~uint64_t{0};
      const auto it = model.find(key);
      ASSERT_EQ(Find(index, key), it == model.end() ? LineIndex::kNoRow : it->second) << key;
      if (it == model.end() && random.Below(4) != 0) {
        const auto row = static_cast<uint32_t>(random.Next() >> 33);
        Insert(index, key, row);
        model.emplace(key, row);
      }
    }
    ExpectEqual(index, model);
  }
}

TEST(LineIndex, SplitsIntoSegmentsAndStaysWithinItsMemory) {
  Arena arena;
  LineIndex index(arena, 5);
  constexpr uint32_t kKeys = 400'000;
  for (uint32_t i = 0; i < kKeys; ++i) Insert(index, i * uint64_t{3}, i);
  for (uint32_t i = 0; i < kKeys; ++i) ASSERT_EQ(Find(index, i * uint64_t{3}), i);
  for (uint32_t i = 0; i < kKeys; ++i) ASSERT_EQ(Find(index, i * uint64_t{3} + 1), LineIndex::kNoRow);
  EXPECT_LT(static_cast<double>(index.memory_bytes()) / kKeys, 20.0);
}

// The reverse of Mix64, to make keys whose hash is as wanted.
uint64_t Unmix(uint64_t x) {
  const auto inverse = [](uint64_t a) {
    uint64_t y = a;
    for (int i = 0; i < 6; ++i) y *= 2 - a * y;
    return y;
  };
  x ^= x >> 31 ^ x >> 62;
  x *= inverse(0x94D049BB133111EBull);
  x ^= x >> 27 ^ x >> 54;
  x *= inverse(0xBF58476D1CE4E5B9ull);
  x ^= x >> 30 ^ x >> 60;
  return x;
}
RowKey KeyWithHash(uint64_t hash) { return Unmix(hash) ^ 0xA0761D6478BD642Full; }

// Keys chosen so that their hashes share their top bits: long overflow runs, wrap-around at the
// last line, splits that put everything into one half. Slow is allowed, wrong is not.
TEST(LineIndex, KeysThatCollideAreStillFound) {
  ASSERT_EQ(LineIndex::HashOf(KeyWithHash(12345)), 12345u);
  for (uint64_t top : {uint64_t{0}, ~uint64_t{0} << 24}) {
    Arena arena;
    LineIndex index(arena, 9);
    std::unordered_map<RowKey, uint32_t> model;
    for (uint32_t i = 0; i < 3000; ++i) {
      const RowKey key = KeyWithHash(top + i);
      Insert(index, key, i);
      model.emplace(key, i);
    }
    ExpectEqual(index, model);
    EXPECT_EQ(Find(index, KeyWithHash(top + 3000)), LineIndex::kNoRow);
  }
}

TEST(LineIndex, ASplitThatLeavesOneHalfEmptyGoesOn) {
  Arena arena;
  LineIndex index(arena, 9);
  const uint32_t n = 2 * LineIndex::kSegmentKeys;
  // Spread over the lower half of the hashes only.
  for (uint32_t i = 0; i < n; ++i) Insert(index, KeyWithHash(Mix64(i) >> 1), i);
  for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(Find(index, KeyWithHash(Mix64(i) >> 1)), i);
}

TEST(LineIndex, ClearEmptiesAndKeepsTheMemory) {
  Arena arena;
  LineIndex index(arena, 2);
  Random random(8);
  // Large, small (cleared key by key), large, small again.
  for (size_t count : {5000, 3, 40, 5000, 100, 0, 200}) {
    std::vector<RowKey> keys;
    for (size_t i = 0; i < count; ++i) {
      const RowKey key = random.Next() >> 40;
      if (Find(index, key) != LineIndex::kNoRow) continue;
      Insert(index, key, static_cast<uint32_t>(i));
      keys.push_back(key);
    }
    const uint64_t memory = index.memory_bytes();
    index.Clear(keys);
    EXPECT_EQ(index.size(), 0u);
    EXPECT_EQ(index.memory_bytes(), memory);
    for (RowKey key : keys) ASSERT_EQ(Find(index, key), LineIndex::kNoRow);
    index.ForEach([](RowKey, uint32_t) { FAIL(); });
  }
}

// The same, where overflowed lines must be cleared too: colliding keys in an index that is large.
TEST(LineIndex, ClearFollowsOverflowedLines) {
  Arena arena;
  LineIndex index(arena, 2);
  std::vector<RowKey> many;
  for (uint64_t i = 0; i < 20'000; ++i) many.push_back(i);
  for (RowKey key : many) Insert(index, key, 1);
  index.Clear(many);
  std::vector<RowKey> few;
  for (uint64_t i = 0; i < 100; ++i) few.push_back(KeyWithHash((uint64_t{1} << 63) + i));
  for (RowKey key : few) Insert(index, key, 2);
  index.Clear(few);
  for (RowKey key : few) EXPECT_EQ(Find(index, key), LineIndex::kNoRow);
  index.ForEach([](RowKey, uint32_t) { FAIL(); });
  for (RowKey key : many) Insert(index, key, 3);
  for (RowKey key : many) ASSERT_EQ(Find(index, key), 3u);
}

// Room for many at once is made in an index that is new or was cleared; keys by chance or all of one
// half; and growth and splits go on from there.
TEST(LineIndex, ReservedRoomIsFilledAndGrowsOn) {
  for (const bool one_half : {false, true}) {
    for (const uint32_t n : {0u, 10u, 1000u, 200'000u}) {
      SCOPED_TRACE(testing::Message() << n << (one_half ? " keys of one half" : " keys"));
      Arena arena;
      LineIndex index(arena, 7);
      std::vector<RowKey> keys;
      std::unordered_map<RowKey, uint32_t> model;
      for (uint32_t i = 0; i < n; ++i) {
        keys.push_back(KeyWithHash(Mix64(i) >> (one_half ? 1 : 0)));
        model.emplace(keys.back(), 3 * i);
      }
      const auto row = [](size_t i) { return static_cast<uint32_t>(3 * i); };
      for (int again = 0; again < 2; ++again) {
        index.Reserve(n);
        const uint64_t memory = index.memory_bytes();
        ASSERT_EQ(index.InsertAll(keys, row), n);
        if (!one_half && n > 1000) {
          EXPECT_EQ(index.memory_bytes(), memory) << "room for all of them";
        }
        ExpectEqual(index, model);
        if (again == 0) index.Clear(keys);
      }
      if (n > 0) {
        const std::vector<RowKey> more = {KeyWithHash(Mix64(n)), keys[n / 2], KeyWithHash(Mix64(n + 1))};
        EXPECT_EQ(index.InsertAll(more, row), 1u) << "up to one that is there";
        model.emplace(more[0], 0);
      }
      for (uint32_t i = 0; i < n; ++i) {
        const RowKey key = KeyWithHash(Mix64(2 * n + i));
        if (model.emplace(key, i).second) Insert(index, key, i);
      }
      ExpectEqual(index, model);
    }
  }
}

}  // namespace
}  // namespace cairn::table

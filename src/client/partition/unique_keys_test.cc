// De-duplication against a naive reference.
#include "client/partition/unique_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.h"

namespace cairn::client {
namespace {

struct Unique {
  std::vector<RowKey> keys;
  std::vector<int64_t> inverse;
  bool operator==(const Unique&) const = default;
};

Unique Fast(const std::vector<RowKey>& keys) {
  Unique result{std::vector<RowKey>(keys.size(), 77), std::vector<int64_t>(keys.size(), -1)};
  const size_t count = UniqueKeys(keys, result.keys, result.inverse);
  EXPECT_LE(count, keys.size());
  result.keys.resize(count);
  return result;
}

Unique Naive(const std::vector<RowKey>& keys) {
  Unique result;
  std::map<RowKey, int64_t> places;
  for (RowKey key : keys) {
    const auto [at, fresh] = places.try_emplace(key, static_cast<int64_t>(places.size()));
    if (fresh) result.keys.push_back(key);
    result.inverse.push_back(at->second);
  }
  return result;
}

TEST(UniqueKeys, AgreesWithANaiveReference) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<RowKey> keys(random.Below(seed % 7 == 0 ? 20'000 : 100));
    const uint64_t range = 1 + random.Below(seed % 3 == 0 ? ~uint64_t{0} - 1 : 200);
    for (RowKey& key : keys) key = random.Below(range) - random.Below(2);  // 0 - 1 is the largest
    EXPECT_EQ(Fast(keys), Naive(keys));
  }
}

TEST(UniqueKeys, TheEnds) {
  EXPECT_EQ(Fast({}), Unique{});
  EXPECT_EQ(Fast({0}), (Unique{{0}, {0}}));
  EXPECT_EQ(Fast({~RowKey{0}, 0, ~RowKey{0}}), (Unique{{~RowKey{0}, 0}, {0, 1, 0}}));
  EXPECT_EQ(Fast(std::vector<RowKey>(1000, 5)), (Unique{{5}, std::vector<int64_t>(1000, 0)}));
}

// All of them belong into the last cell of the smallest table.
TEST(UniqueKeys, CollisionsGoOnAtTheBeginning) {
  std::vector<RowKey> keys;
  for (RowKey key = 0; keys.size() < 16; ++key) {
    if ((Mix64(key) & 63) == 63) keys.insert(keys.end(), {key, key});
  }
  EXPECT_EQ(Fast(keys), Naive(keys));
}

// As many keys as fit half of the table, all different.
TEST(UniqueKeys, AFullTable) {
  for (size_t count : {31, 32, 33, 512, 1 << 15}) {
    std::vector<RowKey> keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = i * 0x9E3779B97F4A7C15ull;
    EXPECT_EQ(Fast(keys), Naive(keys)) << count;
  }
}

// What one call leaves behind must not show in the next, smaller or larger.
TEST(UniqueKeys, OneAfterTheOther) {
  for (size_t count : {3, 700'000, 40, 5, 2000, 3}) {  // 700,000: more than is kept
    std::vector<RowKey> keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = i % (count / 2 + 1);
    EXPECT_EQ(Fast(keys), Naive(keys)) << count;
  }
}

}  // namespace
}  // namespace cairn::client

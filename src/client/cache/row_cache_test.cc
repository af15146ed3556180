// The cache against a model that remembers when each row was read; its bounds; what is admitted.
#include "client/cache/row_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"

namespace cairn::client {
namespace {

// A server whose rows say in which step they were read, in element 0; the others are the key's.
struct Reader {
  RowCache cache;
  uint32_t dim;
  uint32_t step = 0;
  size_t asked = 0;

  Reader(uint64_t rows, uint32_t row_dim, uint32_t steps)
      : cache({.rows = rows, .dim = row_dim, .steps = steps}), dim(row_dim) {}

  std::vector<float> Row(RowKey key) const {
    std::vector<float> row(dim);
    std::iota(row.begin(), row.end(), static_cast<float>(key % 100'000));
    row[0] = static_cast<float>(step);
    return row;
  }
  // One forward pass; for each key the step in which its row was read.
  std::vector<uint32_t> Read(const std::vector<RowKey>& keys) {
    std::vector<float> out(keys.size() * dim, -1);
    std::vector<int64_t> missing(keys.size(), -1);
    const RowCache::Ticket ticket = cache.ticket();
    const size_t left = cache.Take(keys, out, missing);
    missing.resize(left);
    asked += left;
    std::vector<float> rows;
    for (int64_t place : missing) {
      const std::vector<float> row = Row(keys[static_cast<size_t>(place)]);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    cache.Give(ticket, keys, missing, rows, out);
    std::vector<uint32_t> read;
    for (size_t i = 0; i < keys.size(); ++i) {
      read.push_back(static_cast<uint32_t>(out[i * dim]));
      for (uint32_t d = 1; d < dim; ++d)
        EXPECT_EQ(out[i * dim + d], static_cast<float>(keys[i] % 100'000 + d)) << keys[i];
    }
    return read;
  }
  void Step() {
    ++step;
    cache.Step();
  }
};

TEST(RowCache, WhatIsTakenAheadIsStillServedThen) {
  Reader reader(64, 2, 3);
  for (int i = 0; i < 2; ++i) reader.Read({1, 2});
  reader.Step();
  reader.cache.Clear();
  for (int i = 0; i < 2; ++i) reader.Read({1});  // read in step 1
  reader.Step();
  for (int i = 0; i < 2; ++i) reader.Read({2});  // in step 2
  reader.Step();
  std::vector<float> out(4);
  std::vector<int64_t> missing(2);
  const std::vector<RowKey> keys = {1, 2};
  RowCache::Ticket oldest;
  EXPECT_EQ(reader.cache.Take(keys, out, missing, 1, &oldest), 0u);  // in step 3, for step 4: 3 steps after 1
  reader.Step();
  EXPECT_TRUE(reader.cache.Fresh(oldest));
  EXPECT_EQ(reader.cache.Take(keys, out, missing, 1, &oldest), 1u);  // for step 5: key 1 is too old then
  EXPECT_EQ(missing[0], 0);
  reader.Step();
  EXPECT_TRUE(reader.cache.Fresh(oldest));
  reader.Step();
  EXPECT_FALSE(reader.cache.Fresh(oldest));  // a step more than was said
  EXPECT_EQ(reader.cache.Take(keys, out, missing, 4, &oldest), 2u);
}

TEST(RowCache, ARowIsServedForExactlySoManySteps) {
  for (uint32_t steps : {0u, 1u, 3u, 8u}) {
    SCOPED_TRACE(steps);
    Reader reader(64, 4, steps);
    reader.Read({7});
    reader.Read({7});  // the second touch: kept
    for (; reader.step <= steps; reader.Step()) EXPECT_EQ(reader.Read({7}), std::vector<uint32_t>{0});
    EXPECT_EQ(reader.Read({7}), std::vector<uint32_t>{steps + 1}) << "and not a step longer";
    EXPECT_EQ(reader.Read({7}), std::vector<uint32_t>{steps + 1}) << "read anew, it is kept on";
  }
}

TEST(RowCache, NoRowIsEverOlderThanTheBound) {
  uint64_t hits = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const uint32_t steps = static_cast<uint32_t>(random.Below(6));
    Reader reader(1 + random.Below(60), 1 + static_cast<uint32_t>(random.Below(20)), steps);
    std::map<RowKey, uint32_t> newest;  // what was seen of a row never goes back
    size_t wanted = 0;
    for (int i = 0; i < 300; ++i) {
      std::set<RowKey> unique;
      for (int k = 0; k < 20; ++k) unique.insert(random.Below(1 + random.Below(100)));
      const std::vector<RowKey> keys(unique.begin(), unique.end());
      wanted += keys.size();
      const std::vector<uint32_t> read = reader.Read(keys);
      for (size_t k = 0; k < keys.size(); ++k) {
        ASSERT_LE(read[k], reader.step);
        ASSERT_LE(reader.step - read[k], steps);
        ASSERT_GE(read[k], newest[keys[k]]);
        newest[keys[k]] = read[k];
      }
      if (random.Chance(0.7)) reader.Step();
      ASSERT_LE(reader.cache.stats().rows, reader.cache.stats().capacity);
    }
    const RowCache::Stats stats = reader.cache.stats();
    EXPECT_EQ(stats.hits + stats.misses, wanted);
    EXPECT_EQ(stats.misses, reader.asked);
    hits += stats.hits;
  }
  EXPECT_GT(hits, 1000u);
}

TEST(RowCache, MemoryIsBoundedAndTakenOnce) {
  Reader reader(1000, 16, 8);
  const RowCache::Stats before = reader.cache.stats();
  EXPECT_LE(before.capacity, 1000u);
  EXPECT_GE(before.capacity, 993u);
  EXPECT_LE(before.bytes, 1000u * (16 * 4 + 16 + 4 * 4) + 1024);
  for (RowKey key = 0; key < 20'000; key += 20) {
    std::vector<RowKey> keys(20);
    std::iota(keys.begin(), keys.end(), key);
    reader.Read(keys);
    reader.Read(keys);  // all of them hot, for a moment
    reader.Step();
  }
  const RowCache::Stats after = reader.cache.stats();
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_GT(after.rows, 900u);
  EXPECT_LE(after.rows, after.capacity);
  EXPECT_EQ(after.admitted, after.rows + after.evicted);
}

TEST(RowCache, WhatIsReadOnceIsNotKept) {
  Reader reader(1000, 4, 1'000'000);
  for (RowKey key = 0; key < 500; ++key) reader.Read({key});
  EXPECT_EQ(reader.cache.stats().rows, 0u);
}

TEST(RowCache, HotRowsOutliveAStreamOfColdOnes) {
  Reader reader(256, 4, 1'000'000);
  std::vector<RowKey> hot(100);
  std::iota(hot.begin(), hot.end(), RowKey{1'000'000'000});
  for (RowKey cold = 0; cold < 100'000; cold += 200) {
    reader.Read(hot);
    std::vector<RowKey> keys(200);
    std::iota(keys.begin(), keys.end(), cold);
    reader.Read(keys);
    keys.resize(20);  // some come a second time, and are admitted
    reader.Read(keys);
  }
  const uint64_t before = reader.cache.stats().hits;
  reader.Read(hot);
  EXPECT_GE(reader.cache.stats().hits - before, 90u);
  EXPECT_GT(reader.cache.stats().evicted, 1000u);
}

TEST(RowCache, AReadThatWasUnderWayWhenAllWasClearedIsNotKept) {
  Reader reader(64, 1, 8);
  reader.Read({5});
  const RowCache::Ticket ticket = reader.cache.ticket();
  EXPECT_TRUE(reader.cache.Fresh(ticket));
  reader.cache.Clear();
  EXPECT_FALSE(reader.cache.Fresh(ticket));
  const std::vector<RowKey> keys = {5};
  const std::vector<int64_t> missing = {0};
  const std::vector<float> old = {77};
  std::vector<float> out(1);
  reader.cache.Give(ticket, keys, missing, old, out);
  EXPECT_EQ(out, old) << "whoever asked gets it";
  EXPECT_EQ(reader.cache.stats().rows, 0u);
  EXPECT_EQ(reader.Read({5}), std::vector<uint32_t>{0});
}

TEST(RowCache, ALateReadDoesNotReplaceANewerOne) {
  Reader reader(64, 1, 8);
  reader.Read({5});
  const RowCache::Ticket early = reader.cache.ticket();
  reader.Step();
  reader.Read({5});  // kept, of step 1
  const std::vector<RowKey> keys = {5};
  const std::vector<int64_t> missing = {0};
  const std::vector<float> old = {0};
  std::vector<float> out(1);
  reader.cache.Give(early, keys, missing, old, out);
  EXPECT_EQ(reader.Read({5}), std::vector<uint32_t>{1});
}

TEST(RowCache, ATicketIsGoodForAsManySteps) {
  Reader reader(8, 1, 2);
  const RowCache::Ticket ticket = reader.cache.ticket();
  for (int i = 0; i < 2; ++i) {
    reader.Step();
    EXPECT_TRUE(reader.cache.Fresh(ticket));
  }
  reader.Step();
  EXPECT_FALSE(reader.cache.Fresh(ticket));
}

TEST(RowCache, WithoutRowsItOnlyCountsSteps) {
  Reader reader(0, 2, 1);
  for (int i = 0; i < 5; ++i, reader.Step()) {
    EXPECT_EQ(reader.Read({1, 2}), (std::vector<uint32_t>{reader.step, reader.step}));
  }
  EXPECT_EQ(reader.cache.stats().bytes, 0u);
  EXPECT_EQ(reader.cache.stats().misses, 10u);
}

TEST(RowCache, AFewRows) {
  for (uint64_t rows : {1u, 3u, 7u, 9u}) {
    Reader reader(rows, 2, 4);
    EXPECT_LE(reader.cache.stats().capacity, rows);
    for (int i = 0; i < 50; ++i) {
      reader.Read({static_cast<RowKey>(i % 5), static_cast<RowKey>(10 + i % 3)});
      EXPECT_LE(reader.cache.stats().rows, rows);
      reader.Step();
    }
  }
}

TEST(RowCache, WhatWasClearedIsHotOnlyIfItComesTwiceAgain) {
  Reader reader(64, 1, 8);
  for (int i = 0; i < 2; ++i) reader.Read({5});
  EXPECT_EQ(reader.cache.stats().rows, 1u);
  reader.cache.Clear();
  EXPECT_EQ(reader.cache.stats().rows, 0u);
  reader.Read({5});
  EXPECT_EQ(reader.cache.stats().rows, 0u);
}

TEST(RowCache, WhatHasExpiredGoesFirst) {
  Reader reader(8, 1, 2);
  const std::vector<RowKey> all = {1, 2, 3, 4, 5, 6, 7, 8}, others = {1, 2, 3, 4, 6, 7, 8};
  for (int i = 0; i < 2; ++i) reader.Read(all);
  ASSERT_EQ(reader.cache.stats().rows, 8u);
  for (int i = 0; i < 3; ++i) reader.Step();
  reader.Read(others);
  for (int i = 0; i < 2; ++i) reader.Read({9});
  ASSERT_EQ(reader.cache.stats().evicted, 1u);
  const uint64_t hits = reader.cache.stats().hits;
  reader.Read(others);
  EXPECT_EQ(reader.cache.stats().hits - hits, others.size());
}

TEST(RowCache, AReadThatTookLongIsAsOldAsItsBeginning) {
  const std::vector<RowKey> keys = {5};
  const std::vector<int64_t> missing = {0};
  const std::vector<float> row = {77};
  for (uint32_t late : {2u, 4u}) {
    Reader reader(64, 1, 3);
    reader.Read({5});
    const RowCache::Ticket ticket = reader.cache.ticket();
    for (uint32_t i = 0; i < late; ++i) reader.Step();
    std::vector<float> out(1);
    reader.cache.Give(ticket, keys, missing, row, out);
    EXPECT_EQ(reader.cache.stats().rows, late == 2 ? 1u : 0u) << "too old to be kept";
    while (reader.step < 3) reader.Step();
    if (late == 2) {
      EXPECT_EQ(reader.Read({5}), std::vector<uint32_t>{77});
    }
    reader.Step();
    EXPECT_EQ(reader.Read({5}), std::vector<uint32_t>{reader.step});
  }
}

TEST(RowCache, AsFarAheadAsRowsLastOnlyThoseOfThisStepAreTaken) {
  for (uint32_t steps : {0u, 1u, 3u}) {
    SCOPED_TRACE(steps);
    Reader reader(64, 1, steps);
    for (int i = 0; i < 2; ++i) reader.Read({5});
    std::vector<float> out(1);
    std::vector<int64_t> missing(1);
    const std::vector<RowKey> keys = {5};
    EXPECT_EQ(reader.cache.Take(keys, out, missing, steps), 0u);
    reader.Step();
    EXPECT_EQ(reader.cache.Take(keys, out, missing, steps), 1u);
  }
}

TEST(RowCache, FartherAheadThanRowsLastNothingIsTakenAndTheTicketIsThatOfNow) {
  Reader reader(64, 1, 1);
  for (int i = 0; i < 2; ++i) reader.Read({5});
  std::vector<float> out(1);
  std::vector<int64_t> missing(1);
  const std::vector<RowKey> keys = {5};
  RowCache::Ticket oldest{77, 77};
  EXPECT_EQ(reader.cache.Take(keys, out, missing, 2, &oldest), 1u);
  EXPECT_TRUE(reader.cache.Fresh(oldest));
}

}  // namespace
}  // namespace cairn::client

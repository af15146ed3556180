// The sketch of hot rows: the true hottest come first with about their share, whatever the order of keys;
// uniform keys show nothing; old heat fades.
#include "server/slots/hot_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace cairn::server {
namespace {

// Requests of `keys` distinct sorted keys each, by Zipf's law with exponent 1: key k has weight 1 / (k + 1).
class Zipf {
 public:
  explicit Zipf(size_t rows) {
    double sum = 0;
    for (size_t i = 0; i < rows; ++i) sums_.push_back(sum += 1 / static_cast<double>(i + 1));
  }
  RowKey Next() {
    const double at = std::uniform_real_distribution<double>(0, sums_.back())(random_);
    return static_cast<RowKey>(std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }
  double Share(RowKey key) const { return 1 / static_cast<double>(key + 1) / sums_.back(); }

 private:
  std::vector<double> sums_;
  std::mt19937_64 random_{7};
};

TEST(HotRows, TheHottestOfZipfComeFirstWithTheirShare) {
  Zipf zipf(100'000);
  HotRows hot;
  std::vector<RowKey> request;
  for (int i = 0; i < 20'000; ++i) {
    request.clear();
    for (int k = 0; k < 200; ++k) request.push_back(zipf.Next());
    hot.Note(request);
    if (i % 2000 == 0) hot.Age();
  }
  const auto rows = hot.Hottest(16);
  ASSERT_GE(rows.size(), 8u);
  std::set<RowKey> first;
  for (size_t i = 0; i < 8; ++i) first.insert(rows[i].key);
  for (RowKey key = 0; key < 5; ++key) EXPECT_TRUE(first.contains(key)) << key;
  EXPECT_EQ(rows[0].key, 0u);
  EXPECT_NEAR(rows[0].count / hot.total(), zipf.Share(0), 0.2 * zipf.Share(0));
}

TEST(HotRows, ARowAtTheSamePlaceOfEveryRequestCountsOnce) {
  HotRows hot;
  std::vector<RowKey> request(256);
  for (uint64_t i = 0; i < 20'000; ++i) {
    for (uint64_t k = 0; k < 256; ++k) request[k] = 1'000'000 + i * 256 + k;
    request[0] = 1;  // one of 256
    hot.Note(request);
  }
  const auto rows = hot.Hottest(16);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key, 1u);
  EXPECT_NEAR(rows[0].count / hot.total(), 1.0 / 256, 0.4 / 256);
}

TEST(HotRows, UniformKeysShowNothing) {
  HotRows hot;
  std::mt19937_64 random(3);
  std::vector<RowKey> request(1000);
  for (int i = 0; i < 3000; ++i) {
    for (RowKey& key : request) key = random() % 1'000'000;
    hot.Note(request);
  }
  EXPECT_TRUE(hot.Hottest(16).empty());
}

// A row that took over another one's counter owes it what was there, and that fades like all counts.
TEST(HotRows, WhatACounterHeldBeforeFadesToo) {
  std::vector<RowKey> same;  // keys of one set
  for (RowKey key = 1; same.size() < HotRows::kWays + 1; ++key)
    if (key * 0x9E3779B97F4A7C15 >> 58 == 7) same.push_back(key);
  const RowKey hot_key = same.back();
  same.pop_back();
  HotRows hot;
  for (RowKey key : same) hot.Note(std::vector<RowKey>(500, key));
  hot.Note(std::vector<RowKey>(600, hot_key));
  for (int second = 0; second < 20; ++second) hot.Age();
  const auto rows = hot.Hottest(HotRows::kWays);
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const HotRows::Row& row) { return row.key == hot_key; });
  ASSERT_NE(found, rows.end());
  EXPECT_NEAR(found->count, 600 * std::pow(15.0 / 16, 20), 1);
}

TEST(HotRows, OldHeatFades) {
  HotRows hot;
  const std::vector<RowKey> before(100, 1), now(100, 2);
  for (int i = 0; i < 100; ++i) hot.Note(before);
  for (int i = 0; i < 40; ++i) hot.Age();
  for (int i = 0; i < 100; ++i) hot.Note(now);
  const auto rows = hot.Hottest(2);
  ASSERT_GE(rows.size(), 1u);
  EXPECT_EQ(rows[0].key, 2u);
  EXPECT_GT(rows[0].count, 0.8 * hot.total());
  for (int i = 0; i < 300; ++i) hot.Age();
  EXPECT_EQ(hot.total(), 0);
  EXPECT_TRUE(hot.Hottest(2).empty());
}

}  // namespace
}  // namespace cairn::server

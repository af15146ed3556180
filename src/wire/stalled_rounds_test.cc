#include "wire/stalled_rounds.h"

#include <gtest/gtest.h>

#include <numeric>

namespace cairn::wire {
namespace {

StalledRound Waits(uint32_t table, uint32_t ms, std::vector<uint32_t> ranks) {
  const auto missing = static_cast<uint32_t>(ranks.size());
  return {TableId{table}, Round{5}, ms, missing, std::move(ranks)};
}

TEST(StalledRounds, OneThatSeveralReportHasTheLongestWaitAndAllRanks) {
  std::vector<StalledRound> rounds;
  AddStalled(rounds, Waits(1, 2000, {1, 4}));
  AddStalled(rounds, Waits(2, 9000, {0}));
  AddStalled(rounds, Waits(1, 3000, {3, 4}));
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].table, TableId{2}) << "the longest wait first";
  EXPECT_EQ(rounds[1], Waits(1, 3000, {1, 3, 4}));
}

TEST(StalledRounds, StayFewWhateverIsReported) {
  std::vector<uint32_t> ranks(1000);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<StalledRound> rounds;
  for (uint32_t table = 1; table <= 100; ++table) AddStalled(rounds, Waits(table, table, ranks));
  ASSERT_EQ(rounds.size(), kMaxStalledRounds);
  EXPECT_EQ(rounds[0].table, TableId{100});
  EXPECT_EQ(rounds[0].missing, 1000u);
  EXPECT_EQ(rounds[0].missing_ranks.size(), kMaxMissingNamed);
  EXPECT_EQ(rounds[0].missing_ranks.back(), kMaxMissingNamed - 1);
}

}  // namespace
}  // namespace cairn::wire

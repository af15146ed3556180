// What a round's answers say together, in whatever order they come.
#include "client/protocol/round_reports.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace cairn::client {
namespace {

struct Answer {
  std::vector<wire::SlotEntry> entries;
  std::vector<wire::SlotReport> reports;

  void Add(uint32_t slot, double sum_squares, uint32_t not_finite = 0) {
    entries.push_back({slot, sizeof(wire::SlotReport) / sizeof(float), 0});
    wire::SlotReport report{};
    report.sum_squares = sum_squares;
    report.not_finite = not_finite;
    reports.push_back(report);
  }
  wire::ValuesView view() const {
    wire::ValuesView view;
    view.entries = entries;
    view.values = std::as_bytes(std::span(reports));
    return view;
  }
};

std::vector<wire::SlotOwner> TwoServers() { return {{0, 0, 1, {}}, {1, 0, 1, {}}}; }

TEST(RoundReportsTest, TheSumHasTheSameBitsInAnyOrder) {
  const auto owners = TwoServers();
  Answer of_0, of_1;
  of_0.Add(0, 1e16);
  of_1.Add(1, 1.0);
  RoundReports one, other;
  ASSERT_TRUE(one.Take(of_0.view(), owners, {0, 0, true}) && one.Take(of_1.view(), owners, {1, 0, true}));
  ASSERT_TRUE(other.Take(of_1.view(), owners, {1, 0, true}) && other.Take(of_0.view(), owners, {0, 0, true}));
  EXPECT_EQ(one.Info().sum_squares, other.Info().sum_squares);
  EXPECT_TRUE(one.Info().finite);
}

TEST(RoundReportsTest, OfSeveralReportsOfASlotTheLastCounts) {
  const auto owners = TwoServers();
  Answer first, again;
  first.Add(0, 3);
  again.Add(0, 5);
  RoundReports reports;
  ASSERT_TRUE(reports.Take(first.view(), owners, {1, 0, false}));
  ASSERT_TRUE(reports.Take(again.view(), owners, {0, 0, true}));
  EXPECT_EQ(reports.Info().sum_squares, 5);
}

TEST(RoundReportsTest, WhatIsNotFiniteIsTold) {
  const auto owners = TwoServers();
  RoundReports counted, summed;
  Answer not_finite, infinite;
  not_finite.Add(0, 1, 1);
  infinite.Add(0, std::numeric_limits<double>::infinity());
  ASSERT_TRUE(counted.Take(not_finite.view(), owners, {0, 0, true}));
  ASSERT_TRUE(summed.Take(infinite.view(), owners, {0, 0, true}));
  EXPECT_FALSE(counted.Info().finite);
  EXPECT_FALSE(summed.Info().finite);
}

TEST(RoundReportsTest, AllHaveJoinedOnlyIfEveryAnswerSaysSo) {
  RoundReports reports;
  reports.NoteJoined(true);
  EXPECT_TRUE(reports.Info().all_joined);
  reports.NoteJoined(false);
  reports.NoteJoined(true);
  EXPECT_FALSE(reports.Info().all_joined);
}

TEST(RoundReportsTest, AMalformedAnswerIsNotTaken) {
  const auto owners = TwoServers();
  RoundReports reports;
  Answer foreign, unknown, short_one;
  foreign.Add(1, 1);  // a slot that another thread has
  EXPECT_FALSE(reports.Take(foreign.view(), owners, {0, 0, true}));
  unknown.Add(2, 1);
  EXPECT_FALSE(reports.Take(unknown.view(), owners, {0, 0, false}));
  short_one.Add(0, 1);
  wire::ValuesView cut = short_one.view();
  cut.values = cut.values.first(cut.values.size() - 1);
  EXPECT_FALSE(reports.Take(cut, owners, {0, 0, true}));
  EXPECT_EQ(reports.Info().sum_squares, 0);
}

}  // namespace
}  // namespace cairn::client

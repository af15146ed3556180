#include "cluster/supervise/restart_limit.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

constexpr int64_t kMinute = 60'000;
constexpr uint32_t kWorker = 2, kServer = 1;

TEST(RestartLimit, IsReadAndSaid) {
  const auto said = [](std::string_view text) {
    const Result<RestartLimit> limit = ParseRestartLimit(text);
    return limit.ok() ? ToString(*limit) : std::string("wrong");
  };
  EXPECT_EQ(said("3"), "3");
  EXPECT_EQ(said("0"), "0");
  EXPECT_EQ(said("3/10min"), "3 within 10 min");
  EXPECT_EQ(said("5/90s"), "5 within 90 s");
  EXPECT_EQ(said("5/60s"), "5 within 1 min");
  EXPECT_EQ(said("20/1d"), "20 within 1 d");
  EXPECT_EQ(ToString(RestartLimit{}), "3 within 10 min");
  for (const char* text : {"", "x", "-1", "3/", "3/min", "3/0s", "3/10", "3/10m", "3/10min ", "3 /10min",
                           "9999999", "3/99999999999999999999s", "3/400d", "/10min"})
    EXPECT_EQ(said(text), "wrong") << text;
  EXPECT_NE(ParseRestartLimit("3/10m").status().message().find("3/10min"), std::string::npos);
}

TEST(RestartCounts, WithinAWindowEachProcessHasItsOwnAndOldOnesExpire) {
  RestartCounts counts({.count = 2, .window_ms = 10 * kMinute});
  EXPECT_EQ(counts.Take(kWorker, 0, 0), 1u);
  EXPECT_EQ(counts.Take(kWorker, 0, 4 * kMinute), 2u);
  EXPECT_EQ(counts.Take(kWorker, 0, 10 * kMinute - 1), std::nullopt);
  EXPECT_EQ(counts.Take(kWorker, 1, 5 * kMinute), 1u) << "another worker";
  EXPECT_EQ(counts.Take(kServer, 0, 5 * kMinute), 1u) << "another kind";
  EXPECT_EQ(counts.Take(kWorker, 0, 10 * kMinute), 2u) << "the first has expired";
  EXPECT_EQ(counts.Take(kWorker, 0, 10 * kMinute + 1), std::nullopt);
  EXPECT_EQ(counts.total(), 5u);
}

TEST(RestartCounts, AWeekOfRareDeathsIsNoReasonToGiveUp) {
  RestartCounts counts({});
  for (int64_t hour = 0; hour < 7 * 24; ++hour) ASSERT_EQ(counts.Take(kServer, 1, hour * 60 * kMinute), 1u);
}

TEST(RestartCounts, APlainNumberIsForTheWholeJobAndAKind) {
  RestartCounts counts({.count = 2, .window_ms = 0});
  EXPECT_EQ(counts.Take(kWorker, 0, 0), 1u);
  EXPECT_EQ(counts.Take(kWorker, 1, 1), 2u);
  EXPECT_EQ(counts.Take(kWorker, 0, int64_t{1} << 50), std::nullopt);
  EXPECT_EQ(counts.Take(kServer, 0, 2), 1u);
}

}  // namespace
}  // namespace cairn::cluster

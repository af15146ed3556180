#include "cluster/supervise/standstill_watch.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

using News = StandstillWatch::News;

constexpr StandstillWatch::Answer kWaits{.requests_wait = true, .too_few_servers = true};
constexpr StandstillWatch::Answer kCopies{.requests_wait = true};
constexpr StandstillWatch::Answer kRuns{};

TEST(StandstillWatch, AServerThatComesBackInTimeIsNoStandstill) {
  StandstillWatch watch;
  EXPECT_EQ(watch.Next(kWaits), News::kNone);
  EXPECT_EQ(watch.Next(kWaits), News::kNone);
  EXPECT_EQ(watch.Next(kCopies), News::kNone);
  EXPECT_EQ(watch.Next(kWaits), News::kNone) << "it counts from the beginning again";
}

TEST(StandstillWatch, LastsUntilRequestsGoOn) {
  StandstillWatch watch;
  watch.Next(kWaits);
  watch.Next(kWaits);
  EXPECT_EQ(watch.Next(kWaits), News::kStandsStill);
  EXPECT_EQ(watch.Next(kWaits), News::kNone) << "once";
  EXPECT_EQ(watch.Next(kCopies), News::kNone) << "a server is there, but not yet its copies";
  EXPECT_EQ(watch.Next(kRuns), News::kGoesOn);
  EXPECT_EQ(watch.Next(kRuns), News::kNone);
}

}  // namespace
}  // namespace cairn::cluster

#include "server/control/shard_report.h"

#include <gtest/gtest.h>

namespace cairn::server {
namespace {

ShardReport OfSlots(size_t slots) {
  ShardReport report;
  report.loads.resize(slots);
  return report;
}

TEST(ReportTimer, FewSlotsAreReportedWithEveryPieceOfNews) {
  ReportTimer timer;
  timer.Reported(OfSlots(4096), 1'000'000);
  EXPECT_FALSE(timer.AfterMessage(false, 1'000'001));
  EXPECT_TRUE(timer.AfterMessage(true, 1'000'001));
}

TEST(ReportTimer, ManySlotsWaitAndTheirNewsIsNotForgotten) {
  ReportTimer timer;
  timer.Reported(OfSlots(5000), 1'000'000);
  EXPECT_FALSE(timer.AfterMessage(true, 1'009'999));
  EXPECT_TRUE(timer.AfterMessage(false, 1'010'000));
  timer.Reported(OfSlots(5000), 1'010'000);
  EXPECT_FALSE(timer.AfterMessage(false, 1'100'000));
  EXPECT_FALSE(timer.AfterMessage(true, 1'010'001));
  EXPECT_TRUE(timer.OnTick(false, 1'010'002));  // the tick waits for no gap
}

TEST(ReportTimer, EverySecondWithoutNewsToo) {
  ReportTimer timer;
  timer.Reported(OfSlots(1), 1'000'000);
  EXPECT_FALSE(timer.OnTick(false, 1'999'999));
  EXPECT_TRUE(timer.OnTick(false, 2'000'000));
}

}  // namespace
}  // namespace cairn::server

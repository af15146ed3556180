#include "cluster/supervise/copies_watch.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

TEST(CopiesWatch, TellsOfTheBeginningAndTheEndOnce) {
  CopiesWatch watch;
  EXPECT_FALSE(watch.Next(true, 0)) << "nothing was missing";
  ASSERT_TRUE(watch.Next(false, 1'000));
  EXPECT_FALSE(watch.Next(false, 2'000));
  EXPECT_FALSE(watch.Next(true, 3'000)) << "it may be a pause between two moves";
  EXPECT_FALSE(watch.Next(false, 4'000));
  EXPECT_FALSE(watch.Next(true, 5'000));
  const auto over = watch.Next(true, 6'000);
  ASSERT_TRUE(over);
  EXPECT_TRUE(over->complete);
  EXPECT_EQ(over->after_ms, 5'000);
  EXPECT_FALSE(watch.Next(true, 7'000));
  ASSERT_TRUE(watch.Next(false, 8'000));
  EXPECT_FALSE(watch.Next(true, 9'000));
}

}  // namespace
}  // namespace cairn::cluster

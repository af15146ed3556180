#include "client/protocol/user_waits.h"

#include <gtest/gtest.h>

#include <thread>

namespace cairn::client {
namespace {

TEST(UserWaits, AThreadThatSleepsOrDidAMomentAgo) {
  UserWaits waits;
  EXPECT_FALSE(waits.waits(0));
  waits.Enter();
  EXPECT_TRUE(waits.waits(1'000'000));
  waits.Leave(1'000'000);
  EXPECT_TRUE(waits.waits(1'000'000 + UserWaits::kBetweenSlicesUs - 1)) << "between two slices";
  EXPECT_FALSE(waits.waits(1'000'000 + UserWaits::kBetweenSlicesUs));
}

TEST(UserWaits, AProgramWithSeveralThreadsCanNotBeJudged) {
  UserWaits waits;
  waits.Enter();
  waits.NoteCaller();
  waits.NoteCaller();
  EXPECT_TRUE(waits.waits(0));
  std::thread([&] { waits.NoteCaller(); }).join();
  EXPECT_FALSE(waits.waits(0));
}

}  // namespace
}  // namespace cairn::client

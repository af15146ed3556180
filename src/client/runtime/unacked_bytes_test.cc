// The bound on unacknowledged bytes: what fits goes, a push larger than the bound waits until it is
// alone, and callers that wait are woken by room and by the end.
#include "client/runtime/unacked_bytes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

namespace cairn::client {
namespace {

// Long enough for any machine: reached only where a waiter is never woken.
int64_t Far() {
  const auto now = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  return std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
}

TEST(UnackedBytes, WhatFitsIsReserved) {
  UnackedBytes unacked(100);
  EXPECT_TRUE(unacked.Reserve(60, 0));
  EXPECT_FALSE(unacked.Reserve(41, 0));
  EXPECT_TRUE(unacked.Reserve(40, 0));
  EXPECT_EQ(unacked.bytes(), 100u);
  EXPECT_FALSE(unacked.Reserve(1, 0));
  unacked.Free(60);
  EXPECT_FALSE(unacked.Reserve(61, 0));
  EXPECT_TRUE(unacked.Reserve(60, 0));
}

TEST(UnackedBytes, APushLargerThanTheBoundGoesAlone) {
  for (const uint64_t large : {uint64_t{101}, uint64_t{1} << 40, ~uint64_t{0}}) {
    UnackedBytes unacked(100);
    EXPECT_TRUE(unacked.Reserve(1, 0));
    EXPECT_FALSE(unacked.Reserve(large, 0)) << large << " beside another one";
    EXPECT_EQ(unacked.bytes(), 1u);
    unacked.Free(1);
    EXPECT_TRUE(unacked.Reserve(large, 0)) << large << " alone";
    EXPECT_FALSE(unacked.Reserve(1, 0)) << "beside " << large;
    EXPECT_FALSE(unacked.Reserve(large, 0)) << "twice " << large;
    unacked.Free(large);
    EXPECT_EQ(unacked.bytes(), 0u);
    EXPECT_TRUE(unacked.Reserve(1, 0));
  }
}

TEST(UnackedBytes, ALargePushThatWaitsIsWokenWhenTheLastOneHasEnded) {
  UnackedBytes unacked(100);
  ASSERT_TRUE(unacked.Reserve(50, 0));
  ASSERT_TRUE(unacked.Reserve(50, 0));
  std::atomic<bool> alone{false};
  auto large = std::async(std::launch::async, [&] {
    const bool reserved = unacked.Reserve(500, Far());
    EXPECT_TRUE(alone.load()) << "another push was still under way";
    return reserved;
  });
  unacked.Free(50);
  EXPECT_FALSE(unacked.Reserve(500, 0)) << "half is still there";
  alone.store(true);
  unacked.Free(50);
  EXPECT_TRUE(large.get());
  EXPECT_EQ(unacked.bytes(), 500u);
}

TEST(UnackedBytes, EachWaiterGetsRoomInTheEnd) {
  UnackedBytes unacked(100);
  ASSERT_TRUE(unacked.Reserve(100, 0));
  std::vector<std::future<bool>> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.push_back(std::async(std::launch::async, [&] {
      if (!unacked.Reserve(80, Far())) return false;
      EXPECT_LE(unacked.bytes(), 100u);
      unacked.Free(80);
      return true;
    }));
  }
  unacked.Free(100);
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
  EXPECT_EQ(unacked.bytes(), 0u);
}

TEST(UnackedBytes, TheEndWakesWhoeverWaits) {
  UnackedBytes unacked(100);
  ASSERT_TRUE(unacked.Reserve(100, 0));
  auto waiter = std::async(std::launch::async, [&] { return unacked.Reserve(1, Far()); });
  unacked.Close();
  EXPECT_FALSE(waiter.get());
  unacked.Free(100);
  EXPECT_FALSE(unacked.Reserve(1, 0)) << "nothing more is taken";
}

}  // namespace
}  // namespace cairn::client

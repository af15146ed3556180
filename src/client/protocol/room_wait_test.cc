// A wait for room, try by try.
#include "client/protocol/room_wait.h"

#include <gtest/gtest.h>

#include "client/protocol/byte_bound.h"

namespace cairn::client {
namespace {

using Next = RoomWait::Next;

TEST(RoomWait, ItsOwnTripIsSentFirst) {
  RoomWait wait(100);
  EXPECT_EQ(wait.OnFull(false, false, 200), Next::kSendTrip) << "whatever the time is";
  EXPECT_EQ(wait.OnFull(false, false, 99), Next::kTryAgain);
  EXPECT_EQ(wait.OnFull(false, false, 100), Next::kFull);
}

TEST(RoomWait, AClosedClientEndsItAndSoDoesItsProgram) {
  RoomWait wait(100);
  EXPECT_EQ(wait.OnFull(true, true, 0), Next::kSendTrip);
  EXPECT_EQ(wait.OnFull(false, true, 0), Next::kInterrupted);
  EXPECT_EQ(wait.OnFull(true, true, 0), Next::kClosed);
  EXPECT_EQ(wait.OnFull(true, false, 200), Next::kClosed);
}

TEST(ByteBound, WhoFreesRoomIsToldOfThoseWhoWait) {
  ByteBound bound(100);
  ASSERT_TRUE(bound.TryReserve(60));
  EXPECT_FALSE(bound.TryReserve(41));
  EXPECT_FALSE(bound.Free(20)) << "nobody waits";
  bound.BeginWait();
  EXPECT_FALSE(bound.TryReserve(200)) << "not alone";
  EXPECT_TRUE(bound.Free(40));
  EXPECT_TRUE(bound.TryReserve(200)) << "alone";
  bound.EndWait();
  EXPECT_FALSE(bound.Free(200));
}

TEST(ByteBound, AfterCloseNothingIsReserved) {
  ByteBound bound(100);
  ASSERT_TRUE(bound.TryReserve(60));
  bound.Close();
  EXPECT_TRUE(bound.closed());
  EXPECT_FALSE(bound.TryReserve(1));
  bound.Free(60);
  EXPECT_EQ(bound.bytes(), 0u);
}

}  // namespace
}  // namespace cairn::client

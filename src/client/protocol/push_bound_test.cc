// The bound on unacknowledged bytes: what goes at once, what waits, and that a push in parts goes whole or
// not.
#include "client/protocol/push_bound.h"

#include <gtest/gtest.h>

#include "client/protocol/byte_bound.h"

namespace cairn::client {
namespace {

PushBound::Waiting PushOf(uint64_t request, uint64_t bytes) {
  return {.request = request, .numbered = true, .bytes = bytes};
}
PushBound::Waiting PartOf(uint64_t request, uint64_t push, uint64_t bytes, uint64_t room = 0) {
  return {.request = request, .numbered = true, .bytes = bytes, .push = push, .room = room};
}

TEST(ByteBoundRule, WhatFitsGoesAndWhatIsTooLargeGoesAlone) {
  static_assert(FitsBound(0, 100, 10));
  static_assert(FitsBound(4, 6, 10));
  static_assert(!FitsBound(5, 6, 10));
  static_assert(!FitsBound(1, ~uint64_t{0}, 10));  // no overflow
}

TEST(PushBoundTest, PushesGoInOrderAsRoomComes) {
  PushBound bound(10);
  EXPECT_TRUE(bound.has_room());
  bound.Add(PushOf(1, 6));
  bound.Add(PushOf(2, 6));
  bound.Add({.request = 3});  // a pull: behind the push that waits
  EXPECT_EQ(bound.Next(), 1u);
  EXPECT_EQ(bound.Next(), 0u);
  EXPECT_FALSE(bound.has_room());
  EXPECT_FALSE(bound.HasRoomFor(1));
  bound.Free(6);
  EXPECT_EQ(bound.Next(), 2u);
  EXPECT_EQ(bound.Next(), 3u);
  EXPECT_EQ(bound.Next(), 0u);
  EXPECT_EQ(bound.under_way(), 6u);
}

TEST(PushBoundTest, ALargerPushGoesAlone) {
  PushBound bound(10);
  bound.Add(PushOf(1, 1));
  bound.Add(PushOf(2, 50));
  EXPECT_EQ(bound.Next(), 1u);
  EXPECT_EQ(bound.Next(), 0u);
  bound.Free(1);
  EXPECT_EQ(bound.Next(), 2u);
  EXPECT_FALSE(bound.has_room());
  bound.Free(50);
  EXPECT_TRUE(bound.has_room());
}

TEST(PushBoundTest, TheFirstPartWaitsForTheRoomOfAllAndTheOthersFollowIt) {
  PushBound bound(10);
  bound.Add(PushOf(1, 4));
  EXPECT_EQ(bound.Next(), 1u);
  bound.Add(PartOf(2, 7, 3, 9));
  bound.Add(PushOf(3, 1));
  EXPECT_FALSE(bound.AddLaterPart(PartOf(4, 7, 3)));  // behind its first part, before the other push
  EXPECT_EQ(bound.Next(), 0u);
  bound.Free(4);
  EXPECT_EQ(bound.Next(), 2u);
  EXPECT_EQ(bound.Next(), 4u);
  EXPECT_EQ(bound.Next(), 3u);
  EXPECT_TRUE(bound.AddLaterPart(PartOf(5, 7, 3)));  // whatever the room is
  EXPECT_EQ(bound.under_way(), 10u);
}

TEST(PushBoundTest, PartsThatWaitGoTogether) {
  PushBound bound(10);
  bound.Add(PushOf(1, 8));
  EXPECT_EQ(bound.Next(), 1u);
  bound.Add(PartOf(2, 7, 3, 9));
  EXPECT_FALSE(bound.AddLaterPart(PartOf(3, 7, 3)));
  bound.Add(PushOf(4, 1));
  bound.Remove(2);
  EXPECT_EQ(bound.RemovePartsOf(7), std::vector<uint64_t>{3});
  EXPECT_EQ(bound.Next(), 4u);
  EXPECT_TRUE(bound.none_wait());
}

}  // namespace
}  // namespace cairn::client

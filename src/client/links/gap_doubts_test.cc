// What is made of a shard that asks for earlier pushes.
#include "client/links/gap_doubts.h"

#include <gtest/gtest.h>

namespace cairn::client {
namespace {

using Verdict = GapDoubts::Verdict;

TEST(GapDoubtsTest, AGapIsObeyedOncePerConnectionAndResumePoint) {
  GapDoubts doubts;
  EXPECT_EQ(doubts.OnGap(3, 7, 6, true), Verdict::kRewind);
  EXPECT_EQ(doubts.OnGap(3, 7, 6, true), Verdict::kObeyed);
  EXPECT_EQ(doubts.OnGap(3, 8, 6, true), Verdict::kRewind);
  EXPECT_EQ(doubts.OnGap(4, 7, 6, true), Verdict::kRewind);
  doubts.OnConnectionGone();
  EXPECT_EQ(doubts.OnGap(3, 7, 6, true), Verdict::kRewind);
}

TEST(GapDoubtsTest, AnUnansweredPushBelowAnAnsweredOneIsNoDoubt) {
  GapDoubts doubts;
  EXPECT_EQ(doubts.OnGap(3, 5, 6, true), Verdict::kRewind);
}

TEST(GapDoubtsTest, WhatWasAnsweredIsLostIfEveryConnectionAsksForIt) {
  GapDoubts doubts;
  for (uint32_t i = 1; i < GapDoubts::kMost; ++i) {
    EXPECT_EQ(doubts.OnGap(3, 5, 6, false), Verdict::kReopen);
    doubts.OnConnectionGone();
  }
  EXPECT_EQ(doubts.OnGap(3, 5, 6, false), Verdict::kLost);
}

TEST(GapDoubtsTest, ASlotThatGoesOnOrMovesIsDoubtedFromTheBeginning) {
  for (bool moves : {false, true}) {
    GapDoubts doubts;
    for (uint32_t i = 1; i < GapDoubts::kMost; ++i) EXPECT_EQ(doubts.OnGap(3, 5, 6, false), Verdict::kReopen);
    moves ? doubts.ForgetSlot(3) : doubts.OnAnswered(3, 7);
    EXPECT_EQ(doubts.OnGap(3, 5, 7, false), Verdict::kReopen);
  }
}

}  // namespace
}  // namespace cairn::client

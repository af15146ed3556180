// The unanswered frames of a link: what is sent, what is sent again, and when one is overdue.
#include "client/links/unanswered_frames.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn::client {
namespace {

class UnansweredFramesTest : public ::testing::Test {
 protected:
  static Outgoing Frame(uint64_t request, bool parks = false) {
    Outgoing frame;
    frame.request = request;
    frame.parks = parks;
    return frame;
  }
  void Send(uint32_t most = 100) {
    frames.SendUnsent([&](const Outgoing&) { return frames.counted() < most; },
                      [&](Outgoing& frame) { Sent(frame); }, now);
  }
  void SendMarked() {
    frames.SendMarked([&](Outgoing& frame) { Sent(frame); }, now);
  }
  void Sent(Outgoing& frame) {
    frame.again = false;
    frame.heard_us = now;
    ++frame.sends;
    sent.push_back(frame.request);
  }
  std::vector<uint64_t> TakeSent() { return std::exchange(sent, {}); }
  using Ids = std::vector<uint64_t>;

  UnansweredFrames frames;
  std::vector<uint64_t> sent;
  int64_t now = 1000;
};

TEST_F(UnansweredFramesTest, WhatParksIsOutsideTheBound) {
  frames.Add(10, Frame(1));
  frames.Add(20, Frame(2, true));
  frames.Add(30, Frame(3));
  Send(1);
  EXPECT_EQ(TakeSent(), (Ids{1, 2}));
  frames.Take(frames.Find(10));
  Send(1);
  EXPECT_EQ(TakeSent(), (Ids{3}));
  EXPECT_EQ(frames.counted(), 1u);
}

TEST_F(UnansweredFramesTest, AllIsSentAgainOnANewConnection) {
  frames.Add(10, Frame(1));
  frames.Add(20, Frame(2));
  EXPECT_FALSE(frames.any_sent_before());
  Send();
  frames.ForgetSent();
  EXPECT_TRUE(frames.any_sent_before());
  EXPECT_FALSE(frames.IsSent(10));
  Send();
  EXPECT_EQ(TakeSent(), (Ids{1, 2, 1, 2}));
}

TEST_F(UnansweredFramesTest, AFrameFromAnotherLinkGoesToItsPlace) {
  frames.Add(10, Frame(1));
  frames.Add(30, Frame(3));
  Send();
  TakeSent();
  frames.Insert(20, Frame(2));
  frames.Insert(40, Frame(4));
  EXPECT_TRUE(frames.any_marked());
  EXPECT_EQ(frames.counted(), 3u);
  SendMarked();
  EXPECT_EQ(TakeSent(), (Ids{2}));
  Send();
  EXPECT_EQ(TakeSent(), (Ids{4}));
}

TEST_F(UnansweredFramesTest, TheOldestIsOverdueWhateverElseIsAnswered) {
  frames.Add(10, Frame(1));
  frames.Add(20, Frame(2));
  Send();
  now += 60;
  frames.TakeAnswered(frames.Find(20), now);
  now += 40;
  EXPECT_TRUE(frames.Overdue(100, 1000, now));
  frames.Add(30, Frame(3));
  Send();
  frames.TakeAnswered(frames.Find(10), now);  // now the other one is the oldest
  EXPECT_FALSE(frames.Overdue(100, 1000, now));
  frames.NoteProgress(now + 90);
  EXPECT_FALSE(frames.Overdue(100, 1000, now + 180));
}

TEST_F(UnansweredFramesTest, WhatParksIsOverdueWithoutASign) {
  frames.Add(10, Frame(1, true));
  Send();
  EXPECT_FALSE(frames.Overdue(100, 300, now + 299));
  frames.NoteKept(frames.Find(10), now + 200);
  EXPECT_FALSE(frames.Overdue(100, 300, now + 300));
  EXPECT_TRUE(frames.Overdue(100, 300, now + 500));
}

}  // namespace
}  // namespace cairn::client

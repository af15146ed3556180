// What is unanswered on a link, and what of it is sent again.
#include "transport/link/resend_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace cairn {
namespace {

struct Resending : ::testing::Test {
  std::string Send(size_t most = 100) {
    std::string sent;
    queue.SendUnsent([&](const std::string&) { return sent.size() < most; },
                     [&](const std::string& item) { sent += item; });
    return sent;
  }
  ResendQueue<std::string> queue;
};

TEST_F(Resending, EachIsSentOnceAConnectionInTheOrderOfIds) {
  queue.Add(10, "a");
  queue.Add(20, "b");
  EXPECT_EQ(Send(), "ab");
  EXPECT_EQ(Send(), "");
  queue.Add(30, "c");
  EXPECT_EQ(Send(), "c");
  queue.SendAgainBehind(0);
  EXPECT_EQ(Send(), "abc");
}

TEST_F(Resending, ItGoesOnBehindWhatThePeerHas) {
  for (uint64_t id = 1; id <= 4; ++id) queue.Add(id, std::string(1, static_cast<char>('a' + id - 1)));
  Send();
  queue.SendAgainBehind(2);
  EXPECT_TRUE(queue.IsSent(2));
  EXPECT_FALSE(queue.IsSent(3));
  EXPECT_EQ(Send(), "cd");
}

TEST_F(Resending, WhatMayNotBeSentWaitsAndWhatIsBehindItToo) {
  for (uint64_t id = 1; id <= 3; ++id) queue.Add(id, std::string(1, static_cast<char>('a' + id - 1)));
  EXPECT_EQ(Send(2), "ab");
  EXPECT_FALSE(queue.IsSent(3));
  EXPECT_EQ(Send(2), "c");
}

TEST_F(Resending, WhatIsAnsweredIsNotSentAgain) {
  for (uint64_t id = 1; id <= 3; ++id) queue.Add(id, std::string(1, static_cast<char>('a' + id - 1)));
  Send();
  EXPECT_EQ(queue.Take(queue.Find(2)), "b");
  EXPECT_EQ(queue.Find(2), queue.end());
  EXPECT_EQ(queue.size(), 2u);
  queue.SendAgainBehind(0);
  EXPECT_EQ(Send(), "ac");
  queue.Clear();
  EXPECT_TRUE(queue.empty());
}

TEST_F(Resending, OneThatComesLaterGoesToItsPlaceAndCountsAsSentInFrontOfOthers) {
  queue.Add(10, "a");
  queue.Add(30, "c");
  Send();
  queue.Insert(20, "b");
  queue.Insert(40, "d");
  EXPECT_TRUE(queue.IsSent(20));
  EXPECT_EQ(Send(), "d");
  queue.SendAgainBehind(0);
  EXPECT_EQ(Send(), "abcd");
}

using ResendingDeathTest = Resending;

TEST_F(ResendingDeathTest, IdsRise) {
  queue.Add(2, "a");
  EXPECT_DEATH(queue.Add(2, "b"), "broken invariant");
  EXPECT_DEATH(queue.Insert(2, "b"), "broken invariant");
  Send();
  queue.Clear();
  EXPECT_DEATH(queue.Add(1, "c"), "broken invariant") << "what lies behind it was sent";
}

}  // namespace
}  // namespace cairn

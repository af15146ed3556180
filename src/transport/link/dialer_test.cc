#include "transport/link/dialer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace cairn {
namespace {

constexpr int64_t kSecond = 1'000'000;

class Lines final : public Network {
 public:
  ConnId Connect(const wire::Endpoint& to) override {
    dialed.push_back(to.port);
    return ConnId(dialed.size());
  }
  void Send(ConnId, wire::FramePtr) override {}
  void Close(ConnId conn) override { closed.push_back(conn.value); }
  std::vector<uint16_t> dialed;
  std::vector<uint64_t> closed;
};

struct Dialing : ::testing::Test {
  Lines lines;
  std::vector<wire::Endpoint> one{{"a", 1}}, three{{"a", 1}, {"b", 2}, {"c", 3}};
  void Ticks(Dialer& dialer, int64_t from_us, int64_t to_us) {
    for (int64_t t = from_us; t <= to_us; t += 100'000) dialer.OnTick(t);
  }
};

TEST_F(Dialing, TriesAgainEveryIntervalAndGivesUpNothing) {
  Dialer dialer(lines, one, {.every_us = kSecond});
  Ticks(dialer, 0, 5 * kSecond);
  EXPECT_EQ(lines.dialed.size(), 6u);
  EXPECT_EQ(dialer.attempts(), 6u) << "each may still get through";
  EXPECT_TRUE(lines.closed.empty());
  EXPECT_TRUE(dialer.OnConnected(ConnId(2))) << "not the newest";
  EXPECT_EQ(lines.closed, (std::vector<uint64_t>{1, 3, 4, 5, 6}));
  EXPECT_EQ(dialer.attempts(), 0u);
  EXPECT_FALSE(dialer.OnConnected(ConnId(3))) << "too late";
}

TEST_F(Dialing, RefusedAttemptsComeMoreAndMoreSeldomUpToTheInterval) {
  Dialer dialer(lines, one, {.every_us = kSecond, .soonest_us = 50'000});
  for (int64_t t = 0; t < 20 * kSecond; t += 10'000) {
    dialer.OnTick(t);
    if (dialer.attempts() > 0) {
      EXPECT_TRUE(dialer.OnDisconnect(ConnId(lines.dialed.size()), t));
    }
  }
  EXPECT_GT(lines.dialed.size(), 15u);
  EXPECT_LT(lines.dialed.size(), 35u);
}

TEST_F(Dialing, SeveralPlacesAreTriedInTurn) {
  Dialer dialer(lines, three, {.every_us = 3 * kSecond});
  Ticks(dialer, 0, 5 * kSecond);
  EXPECT_EQ(lines.dialed, (std::vector<uint16_t>{1, 2, 3, 1, 2, 3}));
  EXPECT_TRUE(dialer.OnConnected(ConnId(5)));
  EXPECT_EQ(dialer.place().host, "b");
}

TEST_F(Dialing, AnAttemptThatFailsLateDoesNotPutOffTheNext) {
  Dialer dialer(lines, one, {.every_us = kSecond, .soonest_us = 800'000});
  Ticks(dialer, 0, kSecond);
  ASSERT_EQ(lines.dialed.size(), 2u);
  EXPECT_TRUE(dialer.OnDisconnect(ConnId(1), 1'900'000));
  dialer.OnTick(2 * kSecond);
  EXPECT_EQ(lines.dialed.size(), 3u);
}

TEST_F(Dialing, AttemptsAreBounded) {
  Dialer dialer(lines, one, {.every_us = 100'000});
  Ticks(dialer, 0, 60 * kSecond);
  EXPECT_LE(dialer.attempts(), 16u);
  EXPECT_EQ(lines.closed.front(), 1u) << "the oldest";
}

// At which millisecond after the refusal of the first attempt the second one comes.
int64_t PauseMs(Dialer& dialer, Lines& lines) {
  dialer.OnTick(0);
  EXPECT_TRUE(dialer.OnDisconnect(ConnId(1), 0));
  for (int64_t ms = 0; ms < 2000; ++ms) {
    dialer.OnTick(ms * 1000);
    if (lines.dialed.size() == 2) return ms;
  }
  return -1;
}

TEST_F(Dialing, NotEverybodyComesBackAtOneMoment) {
  std::vector<int64_t> pauses;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Lines own;
    Dialer dialer(own, one, {.every_us = kSecond, .soonest_us = 50'000, .seed = seed});
    pauses.push_back(PauseMs(dialer, own));
  }
  const auto [least, most] = std::minmax_element(pauses.begin(), pauses.end());
  EXPECT_GE(*least, 50);
  EXPECT_LE(*most, 75);
  EXPECT_GT(*most - *least, 5);
}

TEST_F(Dialing, HoweverOftenItIsWantedTheShortestPauseIsKept) {
  Dialer dialer(lines, one, {.every_us = kSecond, .soonest_us = 50'000});
  dialer.set_every_us(1);
  for (int64_t t = 0; t < kSecond; t += 1000) {
    dialer.OnTick(t);
    if (dialer.attempts() > 0) {
      EXPECT_TRUE(dialer.OnDisconnect(ConnId(lines.dialed.size()), t));
    }
  }
  EXPECT_LE(lines.dialed.size(), 20u);
  EXPECT_GE(lines.dialed.size(), 10u);
}

}  // namespace
}  // namespace cairn

// A link to one peer: when it dials, greets, is ready and begins again, and what its user is told.
#include "transport/link/peer_link.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "transport/link/resend_queue.h"

namespace cairn {
namespace {

// A network that only records.
class PeerLines final : public Network {
 public:
  ConnId Connect(const wire::Endpoint& to) override {
    dialed.push_back(wire::ToString(to));
    return ConnId(dialed.size());
  }
  void Send(ConnId conn, wire::FramePtr frame) override { sent.emplace_back(conn.value, std::move(frame)); }
  void Close(ConnId conn) override { closed.push_back(conn.value); }
  bool FellBack(ConnId) const override { return fell_back; }
  uint64_t BulkProgress(ConnId) const override { return bulk_progress; }

  std::vector<std::string> dialed;
  std::vector<std::pair<uint64_t, wire::FramePtr>> sent;
  std::vector<uint64_t> closed;
  bool fell_back = false;
  uint64_t bulk_progress = 0;
};

// The user keeps numbers, which it says to have sent, until they are answered.
class PeerLinkTest : public ::testing::Test, public PeerLink::User {
 protected:
  using Numbers = std::vector<int>;
  using Conns = std::vector<uint64_t>;
  static constexpr int64_t kSecond = 1'000'000;

  PeerLinkTest() : link({"peer", 7001}, times, 1, lines, pool, *this) {}

  void OnDial(ConnId conn) override { conns.push_back(conn.value); }
  wire::ControlMessage Hello() const override {
    wire::Hello hello;
    hello.cluster_id = "job";
    return hello;
  }
  void OnReady(int64_t) override {
    ++readies;
    SendUnsent();
  }
  void OnGone(ConnId conn) override {
    gone.push_back(conn.value);
    unanswered.SendAgainBehind(0);
  }
  void OnBulkProgress(int64_t now_us) override { waits_since = now_us; }
  bool Overdue(int64_t limit_us, int64_t now_us) const override {
    return !Idle() && now_us - waits_since >= limit_us;
  }
  bool Idle() const override { return unanswered.empty(); }

  void SendUnsent() {
    if (!link.ready()) return;
    waits_since = now;
    unanswered.SendUnsent([](int) { return true; }, [&](int number) { said.push_back(number); });
  }
  void Say(int number) {
    unanswered.Add(static_cast<uint64_t>(number), number);
    SendUnsent();
  }
  void Answer(int number) {
    unanswered.Take(unanswered.Find(static_cast<uint64_t>(number)));
    waits_since = now;
  }
  void Greet() {
    link.OnConnected(now);
    link.Greeted(now);
  }
  void Tick(int64_t step_us) { link.OnTick(now += step_us); }
  // How long it is until it dials again.
  int64_t Pause() {
    const size_t before = lines.dialed.size();
    const int64_t from = now;
    while (lines.dialed.size() == before && now - from < 100 * kSecond) Tick(1000);
    return now - from;
  }
  // Up to half of it is added at random; ticks are a millisecond apart.
  void ExpectPause(int64_t base_us) {
    const int64_t pause_us = Pause();
    EXPECT_GE(pause_us, base_us);
    EXPECT_LE(pause_us, base_us + base_us / 2 + 1000) << base_us;
  }

  const PeerLink::Times times{.resend_after_us = kSecond, .reconnect = {.min_us = 10'000, .max_us = 80'000}};
  BufferPool pool;
  PeerLines lines;
  PeerLink link;
  int64_t now = 5 * kSecond;
  ResendQueue<int> unanswered;
  int64_t waits_since = 0;
  std::vector<int> said;
  std::vector<uint64_t> conns, gone;
  int readies = 0;
};

TEST_F(PeerLinkTest, ItDialsSaysHelloAndIsReadyOnceItIsAnswered) {
  Say(1);
  link.Start(now);
  EXPECT_EQ(lines.dialed, std::vector<std::string>{"peer:7001"});
  EXPECT_EQ(conns, Conns{1});
  link.Greeted(now);
  EXPECT_FALSE(link.ready()) << "nothing was asked yet";
  EXPECT_TRUE(lines.sent.empty());
  link.OnConnected(now);
  EXPECT_TRUE(link.greeting());
  ASSERT_EQ(lines.sent.size(), 1u);
  EXPECT_EQ(lines.sent[0].first, 1u);
  const Buffer bytes = wire::Flatten(*lines.sent[0].second, pool);
  const wire::InFrame frame = std::move(wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool)).value();
  const auto message = wire::DecodeControl(frame.header, frame.body());
  EXPECT_EQ(std::get<wire::Hello>(*message).cluster_id, "job");
  EXPECT_TRUE(said.empty());
  link.Greeted(now);
  EXPECT_TRUE(link.ready());
  EXPECT_EQ(said, Numbers{1});
  link.OnConnected(now);
  link.Greeted(now);
  EXPECT_EQ(readies, 1) << "once a connection";
}

TEST_F(PeerLinkTest, WhatIsNotAnsweredIsSentAgainInOrderOnTheNextConnection) {
  link.Start(now);
  Greet();
  for (int number : {1, 2, 3}) Say(number);
  Answer(2);
  link.OnDisconnect(now);
  EXPECT_FALSE(link.ready());
  EXPECT_EQ(gone, Conns{1});
  EXPECT_TRUE(lines.closed.empty()) << "it is lost, there is nothing to close";
  Say(4);
  said.clear();
  Pause();
  EXPECT_EQ(conns, (Conns{1, 2}));
  Greet();
  EXPECT_EQ(said, (Numbers{1, 3, 4}));
}

TEST_F(PeerLinkTest, SilenceMakesANewConnection) {
  link.Start(now);
  Greet();
  Tick(10 * kSecond);
  EXPECT_TRUE(link.ready()) << "nothing waits";
  Say(1);
  Tick(kSecond - 1);
  EXPECT_TRUE(link.ready());
  ++lines.bulk_progress;
  Tick(1);
  EXPECT_TRUE(link.ready()) << "large frames move";
  Tick(kSecond);
  EXPECT_FALSE(link.ready());
  EXPECT_EQ(lines.closed, Conns{1});
  EXPECT_EQ(gone, Conns{1});
}

TEST_F(PeerLinkTest, AConnectionThatIsNeverMadeOrNeverAnsweredIsGivenUp) {
  link.Start(now);
  Tick(kSecond - 1);
  EXPECT_TRUE(lines.closed.empty());
  Tick(1);
  EXPECT_EQ(lines.closed, Conns{1});
  Pause();
  Tick(kSecond - 1);
  link.OnConnected(now);
  Tick(kSecond - 1);
  EXPECT_EQ(lines.closed, Conns{1}) << "since it is there";
  Tick(1);
  EXPECT_EQ(lines.closed, (Conns{1, 2}));
}

TEST_F(PeerLinkTest, PausesGrowWhileThePeerTakesNothing) {
  link.Start(now);
  Say(1);
  for (const int64_t base : {10'000, 20'000, 40'000, 80'000, 80'000}) {
    Greet();  // it lets us in, and fails at what it is sent
    link.OnDisconnect(now);
    ExpectPause(base);
  }
  Greet();
  Answer(1);
  link.Answered();
  Say(2);
  link.OnDisconnect(now);
  ExpectPause(10'000);
  link.OnDisconnect(now);
  ExpectPause(20'000);
  Answer(2);
  Greet();
  link.OnDisconnect(now);
  ExpectPause(10'000);
}

TEST_F(PeerLinkTest, WhereThereIsNoConnectionNoneIsGivenUp) {
  link.Start(now);
  link.OnDisconnect(now);
  Tick(10'000 - 1);
  for (int i = 0; i < 10; ++i) link.Reopen(now, "it sends nonsense");
  link.OnDisconnect(now);
  EXPECT_EQ(gone, Conns{1});
  Tick(5'000 + 1);
  EXPECT_EQ(conns, (Conns{1, 2})) << "the pause is what it was";
  EXPECT_EQ(link.trouble(), "it sends nonsense");
}

TEST_F(PeerLinkTest, WhatThePeerSaidIsKeptUntilItIsReady) {
  link.Start(now);
  EXPECT_EQ(link.trouble(), "");
  link.OnConnected(now);
  link.Reopen(now, "no state yet");
  EXPECT_EQ(lines.closed, Conns{1});
  Pause();
  link.OnDisconnect(now);
  EXPECT_EQ(link.trouble(), "no state yet");
  Pause();
  Greet();
  EXPECT_EQ(link.trouble(), "");
  link.set_trouble("not so fast");
  link.Reopen(now);
  EXPECT_EQ(link.trouble(), "not so fast");
}

TEST_F(PeerLinkTest, AfterStopNothingHappensAnyMore) {
  link.Start(now);
  Greet();
  link.Stop();
  EXPECT_FALSE(link.on());
  EXPECT_EQ(lines.closed, Conns{1});
  EXPECT_EQ(gone, Conns{1});
  link.Stop();
  link.Reopen(now);
  link.OnDisconnect(now);
  link.OnConnected(now);
  link.Greeted(now);
  Tick(100 * kSecond);
  EXPECT_EQ(lines.dialed.size(), 1u);
  EXPECT_EQ(gone, Conns{1});
  EXPECT_EQ(readies, 1);
}

TEST_F(PeerLinkTest, OneThatFellBackToTcpIsTriedAgainAtOnceWhenItsTimeHasCome) {
  lines.fell_back = true;
  link.Start(now);
  Greet();
  Tick(transport::SharedMemoryRetry::kFirstUs - 1);
  EXPECT_TRUE(link.ready());
  Tick(1);
  EXPECT_EQ(lines.closed, Conns{1});
  EXPECT_EQ(conns, (Conns{1, 2})) << "without a pause";
  lines.fell_back = false;
  Greet();
  Tick(1000 * kSecond);
  EXPECT_EQ(conns, (Conns{1, 2}));
}

}  // namespace
}  // namespace cairn

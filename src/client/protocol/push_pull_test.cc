// A push and the pull behind it as one call: when the pull's answer counts, and when it is asked for again.
#include "client/protocol/push_pull.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class PushPullTest : public ::testing::Test, public PushPull::Driver {
 protected:
  PushPullTest()
      : c(1, 1, 4),
        table(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})) {
    c.options.max_unacked_bytes = 20;
    c.StartAll();
  }
  int64_t NowUs() const override { return c.now; }
  Result<Request> PreparePull() override {
    return client::PreparePull({.state = c.core->state().get(),
                                .table = &table,
                                .keys = {&key, 1},
                                .out = std::as_writable_bytes(std::span(&out, 1))},
                               c.pool);
  }
  void OnPushEnded() override { ++pushes_ended; }
  void OnEnded(const Status& outcome) override {
    EXPECT_FALSE(ended);
    EXPECT_EQ(pushes_ended, 1);
    ended = outcome;
  }
  Request Push(int64_t timeout_us = 600'000'000) {
    Request request = PreparePush({.state = c.core->state().get(),
                                   .table = &table,
                                   .keys = {&key, 1},
                                   .values = std::as_bytes(std::span(&one, 1))},
                                  c.pool)
                          .value();
    request.deadline_us = c.now + timeout_us;
    return request;
  }
  void Start(int64_t timeout_us = 600'000'000) {
    call.emplace(*c.core, *this);
    call->Start(Push(), PreparePull().value(), 1, c.now + timeout_us, std::make_shared<int>(0));
    c.Run();
  }
  void SubmitOther() {
    Request other = Push();
    other.done = [](const Status&) {};
    c.core->Submit(std::move(other), c.now);
    c.Run();
  }
  void Ack() { c.AckPush(kLink, c.Take(kLink).header); }
  void AnswerPull(int64_t value, uint64_t seq) {
    std::vector<std::byte> bytes(sizeof(value));
    std::memcpy(bytes.data(), &value, sizeof(value));
    const wire::InFrame pull = c.Take(kLink);
    ASSERT_EQ(pull.header.type, wire::FrameType::kPull);
    c.AnswerValues(kLink, pull, bytes, Position::Of(1, seq));
  }

  static constexpr Link kLink{0, 0};
  FakeCluster c;
  wire::TableInfo table;
  RowKey key = 1;
  int64_t one = 1, out = -1;
  int pushes_ended = 0;
  std::optional<Status> ended;
  std::optional<PushPull> call;
};

TEST_F(PushPullTest, BothGoAtOnceAndTheAnswersInOrderEndIt) {
  Start();
  ASSERT_EQ(c.Inbox(kLink).size(), 2u);
  Ack();
  EXPECT_EQ(pushes_ended, 1);
  EXPECT_FALSE(ended);
  AnswerPull(7, 1);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok()) << ended->ToString();
  EXPECT_EQ(out, 7);
}

TEST_F(PushPullTest, APullThatMayHaveOvertakenThePushIsAskedForAgain) {
  Start();
  const wire::InFrame push = c.Take(kLink);
  AnswerPull(3, 1);  // before the push had ended
  EXPECT_FALSE(ended);
  c.AckPush(kLink, push.header);
  EXPECT_FALSE(ended);
  AnswerPull(7, 2);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok());
  EXPECT_EQ(out, 7);
}

TEST_F(PushPullTest, AfterARewindThePullIsAskedForAgain) {
  Start();
  const wire::FrameHeader push = c.Inbox(kLink).front().header;
  c.Inbox(kLink).clear();
  c.Gap(kLink, push, wire::SlotOfKey(key, 4).value, 1);
  ASSERT_EQ(c.core->rewinds(), 1u);
  ASSERT_EQ(c.Inbox(kLink).size(), 2u);
  Ack();
  AnswerPull(3, 1);
  EXPECT_FALSE(ended);
  AnswerPull(7, 2);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok());
}

TEST_F(PushPullTest, BehindAPushThatWaitsForRoomThePullFollowsWhenThePushHasEnded) {
  for (int i = 0; i < 3; ++i) SubmitOther();
  ASSERT_FALSE(c.core->has_room());
  Start();
  while (!c.Inbox(kLink).empty() && pushes_ended == 0) Ack();
  ASSERT_EQ(pushes_ended, 1);
  ASSERT_EQ(c.Inbox(kLink).size(), 1u);
  AnswerPull(7, 9);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok());
}

TEST_F(PushPullTest, ItEndsLikeAPushThatFailsAndOnlyWhenThePullHasEndedToo) {
  Start(1'000'000);
  c.Wait(1'500'000);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code(), Code::kOutcomeUnknown);
  EXPECT_EQ(out, -1);
}

TEST_F(PushPullTest, ItIsKeptUntilItHasEndedAndNoLongerThanTheCore) {
  for (const bool ends : {true, false}) {
    ended.reset();
    pushes_ended = 0;
    auto alive = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = alive;
    call.emplace(*c.core, *this);
    call->Start(Push(), PreparePull().value(), 1, c.now + 600'000'000, alive);
    alive.reset();
    c.Run();
    EXPECT_FALSE(watched.expired());
    if (ends) {
      Ack();
      AnswerPull(1, 1);
      EXPECT_TRUE(ended && ended->ok());
    } else {
      c.core.reset();  // its process has been killed: nobody is told
      EXPECT_FALSE(ended);
    }
    EXPECT_TRUE(watched.expired());
  }
}

}  // namespace
}  // namespace cairn::client

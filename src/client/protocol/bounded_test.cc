// Bounded tables on the worker's side: when a clock is told and to whom, and what a pull says
// (docs/internals/consistency.md, rules 56 to 58).
#include <gtest/gtest.h>

#include <optional>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class BoundedTest : public ::testing::Test {
 protected:
  explicit BoundedTest(uint32_t servers = 1) : c(servers, 1, 4) {
    TableSpec spec{.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1};
    spec.staleness = 2;
    table = c.AddTable(spec);
  }
  Request Push() {
    Request request = PreparePush({.state = c.core->state().get(),
                                   .table = &table,
                                   .keys = {&key, 1},
                                   .values = std::as_bytes(std::span(&one, 1))},
                                  c.pool)
                          .value();
    request.deadline_us = c.now + 600'000'000;
    request.done = [](const Status&) {};
    return request;
  }
  void Submit(Request request) {
    c.core->Submit(std::move(request), c.now);
    c.Run();
  }
  void Pull() {
    Request request = PreparePull({.state = c.core->state().get(),
                                   .table = &table,
                                   .keys = {&key, 1},
                                   .out = std::as_writable_bytes(std::span(&out, 1))},
                                  c.pool)
                          .value();
    request.deadline_us = c.now + 600'000'000;
    request.done = [this](const Status& status) { pulled = status; };
    Submit(std::move(request));
  }
  void EndStep(bool last = false) {
    c.core->EndStep(table.id, last, c.now);
    c.Run();
  }
  // The next frame must be a clock; answers it.
  wire::FrameHeader TakeClock(Link link = kLink, uint64_t start = 0) {
    const wire::InFrame frame = c.Take(link);
    EXPECT_EQ(frame.header.type, wire::FrameType::kClock);
    c.Answer(link, wire::EncodeClockReply(frame.header, Round{start}, StateVersion{0}, c.pool));
    return frame.header;
  }

  static constexpr Link kLink{0, 0};
  FakeCluster c;
  wire::TableInfo table;
  RowKey key = 1;
  int64_t one = 1, out = -1;
  std::optional<Status> pulled;
};

TEST_F(BoundedTest, AClockIsToldWhenThePushesOfItsStepsAreAnswered) {
  c.StartAll();
  Submit(Push());
  EndStep();
  EXPECT_EQ(c.core->clock(table.id), Round{1});
  const wire::InFrame push = c.Take(kLink);
  EXPECT_TRUE(c.Inbox(kLink).empty());
  c.AckPush(kLink, push.header);
  EXPECT_EQ(TakeClock().round, 1u);
  EXPECT_TRUE(c.Inbox(kLink).empty());
}

TEST_F(BoundedTest, AStepWithoutPushesIsToldAtOnce) {
  c.StartAll();
  EndStep();
  EXPECT_EQ(TakeClock().round, 1u);
  EndStep(true);
  const wire::FrameHeader last = TakeClock();
  EXPECT_EQ(last.round, 2u);
  EXPECT_NE(last.flags & wire::kFlagDone, 0);
}

TEST_F(BoundedTest, APullNamesTheClock) {
  c.StartAll();
  EndStep();
  EndStep();
  TakeClock();
  TakeClock();
  Pull();
  const wire::InFrame pull = c.Take(kLink);
  EXPECT_EQ(pull.header.type, wire::FrameType::kPull);
  EXPECT_NE(pull.header.flags & wire::kFlagSyncPull, 0);
  EXPECT_EQ(pull.header.round, 2u);
  c.AnswerValues(kLink, pull, std::vector<std::byte>(8), Position::Of(1, 1));
  EXPECT_TRUE(pulled && pulled->ok());
}

TEST_F(BoundedTest, AnUnansweredClockIsSentAgainOnANewConnection) {
  c.StartAll();
  EndStep();
  EXPECT_EQ(c.Take(kLink).header.type, wire::FrameType::kClock);
  c.Break(kLink);
  c.Wait(3'000'000);
  EXPECT_EQ(TakeClock().round, 1u);
}

TEST_F(BoundedTest, AServerThatComesIsToldTheClock) {
  c.StartAll();
  EndStep();
  EXPECT_EQ(TakeClock().round, 1u);
  c.Join(1);
  c.NewState();
  c.Wait(1'000'000);
  EXPECT_EQ(TakeClock({1, 0}).round, 1u);
}

TEST_F(BoundedTest, AClockForAServerThatIsGoneHoldsNothingUp) {
  c.Join(1);
  c.StartAll();
  EndStep();
  EXPECT_EQ(TakeClock().round, 1u);
  EXPECT_EQ(c.Take({1, 0}).header.type, wire::FrameType::kClock);
  c.Kill(1);
  c.NewState();
  c.Wait(1'000'000);
  while (!c.Inbox(kLink).empty()) TakeClock();
  std::optional<Status> left;
  c.core->Leave(c.now + 60'000'000, [&](const Status& status) { left = status; }, c.now);
  c.Run();
  EXPECT_TRUE(left && left->ok());
}

TEST_F(BoundedTest, WhoJoinsLaterAsksWhereToBeginAndTellsThat) {
  c.state.workers[0].join_view = ViewNumber{2};
  c.state.view = ViewNumber{2};
  c.state.views.push_back({ViewNumber{2}, {}});
  c.StartAll();
  EXPECT_EQ(TakeClock(kLink, 40).round, 0u);
  EXPECT_EQ(c.core->clock(table.id), Round{40});
  EXPECT_EQ(TakeClock().round, 40u);
  EndStep();
  EXPECT_EQ(TakeClock().round, 41u);
}

TEST_F(BoundedTest, WhoGoesOnAfterItsLastStepTakesPartFromWhereTheOthersAre) {
  c.StartAll();
  EndStep(true);
  EXPECT_NE(TakeClock().flags & wire::kFlagDone, 0);
  EndStep();
  EXPECT_EQ(TakeClock(kLink, 30).round, 0u);
  const wire::FrameHeader low = TakeClock();  // it was on its way already
  EXPECT_EQ(low.round, 2u);
  EXPECT_EQ(low.flags & wire::kFlagDone, 0);
  EXPECT_EQ(TakeClock().round, 30u);
}

}  // namespace
}  // namespace cairn::client

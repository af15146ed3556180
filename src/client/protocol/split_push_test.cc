// A push in parts, each a request of its own: all are sent or none, and the caller is told what can be
// known of the whole.
#include "client/protocol/split_push.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

const Status kUnknown(Code::kOutcomeUnknown, "no answer"), kGone(Code::kRetired, "this worker is gone");

// Ends of the parts → what the caller is told.
Status ToldOf(const std::vector<Status>& ends) {
  SplitPush push(48);
  SplitPush::Numbers numbers;
  std::optional<Status> told;
  for (size_t i = 0; i < ends.size(); ++i) {
    Request part;
    if (i + 1 < ends.size()) {
      EXPECT_TRUE(push.BeginPart(part, 1, numbers));
    } else {
      EXPECT_TRUE(push.BeginLast(part, [&] { told = push.outcome(); }));
    }
  }
  for (const Status& end : ends) {
    EXPECT_FALSE(told);
    push.Ended(end);
  }
  EXPECT_TRUE(told);
  return told.value_or(Status::Ok());
}

TEST(OutcomeOfParts, IsThatOfAllOfThem) {
  EXPECT_TRUE(ToldOf({{}, {}, {}}).ok());
  EXPECT_EQ(ToldOf({{}, kUnknown}).code(), Code::kOutcomeUnknown);
  EXPECT_EQ(ToldOf({kGone, kGone}).code(), Code::kRetired);  // nothing of it was sent
  for (const std::vector<Status>& ends :
       {std::vector<Status>{{}, kGone}, {kGone, {}}, {kUnknown, kGone}, {kGone, kUnknown}}) {
    const Status told = ToldOf(ends);
    EXPECT_EQ(told.code(), Code::kOutcomeUnknown);  // who tries again would apply a part twice
  }
  EXPECT_NE(ToldOf({{}, kGone}).message().find(kGone.message()), std::string::npos);
}

TEST(PartsOfAPush, HaveItsNumberAndItsTripAndTheFirstAsksForRoomForAll) {
  SplitPush::Numbers numbers;
  SplitPush push(48), other(10);
  Request first, second, last, of_other;
  EXPECT_TRUE(push.BeginPart(first, 5, numbers));
  EXPECT_TRUE(other.BeginPart(of_other, 6, numbers));
  EXPECT_TRUE(push.BeginPart(second, 6, numbers));
  EXPECT_TRUE(push.BeginLast(last, [] {}));
  EXPECT_EQ(first.room, 48u);
  EXPECT_EQ(second.room + last.room, 0u);
  for (const Request* part : {&first, &second, &last}) {
    EXPECT_EQ(part->push, first.push);
    EXPECT_EQ(part->trip, 5u);
  }
  EXPECT_NE(first.push, 0u);
  EXPECT_NE(of_other.push, first.push);
}

TEST(PartsOfAPush, AfterARefusalNothingIsSent) {
  SplitPush::Numbers numbers;
  SplitPush push(48);
  Request part;
  std::optional<Status> told;
  EXPECT_TRUE(push.BeginPart(part, 1, numbers));
  EXPECT_TRUE(push.BeginPart(part, 1, numbers));
  push.Ended(kGone);
  EXPECT_TRUE(push.BeginPart(part, 1, numbers));  // the other one may have been sent
  push.Ended(kGone);
  push.Ended(kGone);
  EXPECT_FALSE(push.BeginPart(part, 1, numbers));
  EXPECT_FALSE(push.BeginLast(part, [&] { told = push.outcome(); }));
  EXPECT_FALSE(told);
  push.Ended(push.outcome());
  ASSERT_TRUE(told);
  EXPECT_EQ(told->code(), Code::kRetired);
}

TEST(PartsOfAPush, AfterAnUnknownOutcomeTheRestFollows) {
  SplitPush::Numbers numbers;
  SplitPush push(48);
  Request part;
  EXPECT_TRUE(push.BeginPart(part, 1, numbers));
  push.Ended(kUnknown);
  EXPECT_TRUE(push.BeginPart(part, 1, numbers));
  EXPECT_TRUE(push.BeginLast(part, [] {}));
}

// One link; a part is one row of 16 bytes, and there is room for 20.
class SplitPushTest : public ::testing::Test {
 protected:
  SplitPushTest()
      : c(1, 1, 4),
        table(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})) {
    c.options.max_unacked_bytes = 20;
    c.StartAll();
  }
  // `push` 0: a push of its own. `first`: of its parts, which need 48 bytes.
  void Submit(uint64_t push, bool first = false, int64_t timeout_us = 600'000'000) {
    const std::vector<RowKey> keys = {1};
    const std::vector<int64_t> values = {1};
    const PartitionInput input{.state = c.core->state().get(),
                               .table = &table,
                               .keys = keys,
                               .values = std::as_bytes(std::span(values))};
    Request request = PreparePush(input, c.pool).value();
    request.deadline_us = c.now + timeout_us;
    request.push = push;
    request.room = first ? 48 : 0;
    request.done = [this, at = ends.size()](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    ends.emplace_back();
    c.core->Submit(std::move(request), c.now);
    c.Run();
  }
  size_t sent() { return c.Inbox(kLink).size(); }
  void Ack() { c.AckPush(kLink, c.Take(kLink).header); }
  std::optional<Code> End(size_t at) { return ends[at] ? std::optional(ends[at]->code()) : std::nullopt; }

  static constexpr Link kLink{0, 0};
  FakeCluster c;
  wire::TableInfo table;
  std::vector<std::optional<Status>> ends;
};

TEST_F(SplitPushTest, WhatFollowsTheFirstIsNotHeldBack) {
  Submit(7, true);
  Submit(0);  // somebody else's: no room
  EXPECT_EQ(sent(), 1u);
  Submit(7);
  Submit(7);
  EXPECT_EQ(sent(), 3u);
  for (int i = 0; i < 3; ++i) Ack();
  EXPECT_EQ(sent(), 1u);
  Ack();
  for (size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(End(i), Code::kOk) << i;
}

TEST_F(SplitPushTest, TheyWaitForRoomTogether) {
  Submit(0);
  Submit(7, true);
  Submit(0);  // between the parts, and behind them all
  Submit(7);
  Submit(7);
  EXPECT_EQ(sent(), 1u);
  Ack();
  EXPECT_EQ(sent(), 3u);
  for (int i = 0; i < 3; ++i) Ack();
  EXPECT_FALSE(End(2));
  EXPECT_EQ(sent(), 1u);
}

TEST_F(SplitPushTest, OnesThatWaitedTooLongAreDroppedTogether) {
  Submit(0);
  Submit(7, true, 1'000'000);
  Submit(7, false, 1'000'000);
  Submit(0);
  c.Wait(1'500'000);
  EXPECT_EQ(End(1), Code::kDeadlineExceeded);
  EXPECT_EQ(End(2), Code::kDeadlineExceeded);
  EXPECT_EQ(sent(), 1u);
  Ack();
  EXPECT_EQ(sent(), 1u);  // the last one
  Ack();
  EXPECT_EQ(End(3), Code::kOk);
  EXPECT_EQ(sent(), 0u);
}

TEST_F(SplitPushTest, OnceTheFirstWasSentTheOthersAreSentAfterTheDeadlineToo) {
  Submit(7, true, 1'000'000);
  c.Wait(1'500'000);
  EXPECT_EQ(End(0), Code::kOutcomeUnknown);
  Submit(7, false, 0);
  c.Wait(100'000);
  EXPECT_EQ(End(1), Code::kOutcomeUnknown);
  EXPECT_EQ(sent(), 2u);
  Ack();
  Ack();
  EXPECT_TRUE(c.core->has_room());
}

TEST_F(SplitPushTest, TheFirstOneWaitsForTheRoomOfAll) {
  FakeCluster larger(1, 1, 4);
  larger.AddTable(table.spec);
  larger.options.max_unacked_bytes = 40;
  larger.StartAll();
  const std::vector<RowKey> keys = {1};
  const std::vector<int64_t> values = {1};
  for (uint64_t push : {0, 7}) {
    Request request = PreparePush({.state = larger.core->state().get(),
                                   .table = &table,
                                   .keys = keys,
                                   .values = std::as_bytes(std::span(values))},
                                  larger.pool)
                          .value();
    request.deadline_us = larger.now + 600'000'000;
    request.push = push;
    request.room = push == 0 ? 0 : 48;
    larger.core->Submit(std::move(request), larger.now);
  }
  larger.Run();
  EXPECT_EQ(larger.Inbox(kLink).size(), 1u);
  larger.AckPush(kLink, larger.Take(kLink).header);
  EXPECT_EQ(larger.Inbox(kLink).size(), 1u);
}

}  // namespace
}  // namespace cairn::client

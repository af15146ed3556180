// Requests that wait for their turn, and those that were made before the slots moved.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class HeldTest : public ::testing::Test {
 protected:
  HeldTest()
      : c(2, 1, 4),
        rows(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})),
        sync(c.AddTable({.name = "w", .mode = Mode::kSync, .size = 8000})),
        values(8000),
        out(8000) {
    c.options.max_unacked_bytes = 100;  // a row is 16
  }
  // `count` rows of one slot.
  PartitionInput RowsOf(uint32_t slot, size_t count) {
    keys.clear();
    for (RowKey key = 0; keys.size() < count; ++key)
      if (wire::SlotOfKey(key, 4).value == slot) keys.push_back(key);
    ones.assign(count, 1);
    read.assign(count, 0);
    return {.state = c.core->state().get(),
            .table = &rows,
            .keys = keys,
            .values = std::as_bytes(std::span(ones)),
            .out = std::as_writable_bytes(std::span(read))};
  }
  void Expect(Request& request, int64_t timeout_us = 600'000'000) {
    request.deadline_us = c.now + timeout_us;
    request.done = [this, at = ends.size()](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    ends.emplace_back();
  }
  void Submit(Result<Request> request, int64_t timeout_us = 600'000'000) {
    CAIRN_CHECK(request.ok());
    Expect(*request, timeout_us);
    c.core->Submit(std::move(*request), c.now);
    c.Run();
  }
  void Push(uint32_t slot, size_t count, int64_t timeout_us = 600'000'000) {
    Submit(PreparePush(RowsOf(slot, count), c.pool), timeout_us);
  }
  size_t Sent() {
    size_t frames = 0;
    for (Link link : c.Links()) frames += c.Inbox(link).size();
    return frames;
  }

  FakeCluster c;
  wire::TableInfo rows, sync;
  std::vector<RowKey> keys;
  std::vector<int64_t> ones, read;
  std::vector<float> values, out;
  std::vector<std::optional<Status>> ends;
};

TEST_F(HeldTest, BeforeTheStartNothingIsTaken) {
  c.Make();
  PartitionInput input = RowsOf(0, 1);
  input.state = &c.state;
  Submit(PreparePush(input, c.pool));
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(ends[0]->code(), Code::kUnavailable);
}

TEST_F(HeldTest, WhatFollowsOneThatComesToItsDeadlineGoes) {
  c.StartAll();
  Push(0, 5);
  Push(0, 3, 1'000'000);  // no room
  Push(0, 1);             // there would be, but it is behind
  EXPECT_EQ(Sent(), 1u);
  EXPECT_FALSE(c.core->has_room());
  c.Wait(1'500'000);
  ASSERT_TRUE(ends[1]);
  EXPECT_EQ(ends[1]->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(Sent(), 2u);
  EXPECT_TRUE(c.core->has_room());
}

TEST_F(HeldTest, APushAndItsPullDoNotOvertakeAPushThatIsHeld) {
  c.StartAll();
  Push(0, 5);
  Push(0, 3);
  Request push = PreparePush(RowsOf(0, 1), c.pool).value(), pull = PreparePull(RowsOf(0, 1), c.pool).value();
  Expect(push);
  Expect(pull);
  c.core->SubmitInTurns(std::move(push), std::move(pull), c.now);
  c.Run();
  EXPECT_EQ(Sent(), 1u);
}

TEST_F(HeldTest, APushAndItsPullFollowTheirSlot) {
  c.StartAll();
  const auto before = c.core->state();
  PartitionInput input = RowsOf(0, 1);
  input.state = before.get();
  const Link old = c.LinkOfSlot(0), now{1 - old.first, 0};
  Request push = PreparePush(input, c.pool).value(), pull = PreparePull(input, c.pool).value();
  Expect(push);
  Expect(pull);
  c.Move(0, now);
  c.NewState();
  c.core->SubmitInTurns(std::move(push), std::move(pull), c.now);
  c.Run();
  EXPECT_TRUE(c.Inbox(old).empty());
  ASSERT_EQ(c.Inbox(now).size(), 2u);
  for (const wire::InFrame& frame : c.Inbox(now))
    EXPECT_EQ(frame.header.state_version, c.state.version.value) << "else its owner refuses it";
}

TEST_F(HeldTest, WhatFollowsARoundThatComesToItsDeadlineGoes) {
  c.StartAll();
  const PartitionInput input{.state = c.core->state().get(),
                             .table = &sync,
                             .values = std::as_bytes(std::span(values)),
                             .out = std::as_writable_bytes(std::span(out))};
  Submit(PrepareRound(input, c.pool));
  Submit(PrepareRound(input, c.pool), 1'000'000);
  Submit(PreparePull(input, c.pool));
  const size_t sent = Sent();
  EXPECT_EQ(c.core->next_round(sync.id), Round{2});
  c.Wait(1'500'000);
  ASSERT_TRUE(ends[1]);
  EXPECT_GT(Sent(), sent) << "the pull";
  EXPECT_EQ(c.core->next_round(sync.id), Round{1}) << "that round was never begun";
}

TEST_F(HeldTest, OfSeveralRefusalsTheFirstIsTold) {
  c.StartAll();
  const std::vector<RowKey> many = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> one(6, 1);
  Submit(PreparePush(
      {.state = c.core->state().get(), .table = &rows, .keys = many, .values = std::as_bytes(std::span(one))},
      c.pool));
  int number = 0;
  for (Link link : c.Links()) {
    ASSERT_EQ(c.Inbox(link).size(), 1u);
    const wire::InFrame frame = c.Take(link);
    wire::SlotEntry problem = wire::DecodePush(frame.header, frame.body())->entries[0];
    problem.count = static_cast<uint32_t>(Code::kNotFound);
    c.Answer(link, wire::EncodePushReply(frame.header, {&problem, 1}, "reason " + std::to_string(++number),
                                         c.pool));
  }
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(*ends[0], Status(Code::kNotFound, "reason 1"));
}

TEST_F(HeldTest, AClosedClientKnowsWhatItNeverSent) {
  c.StartAll();
  Push(0, 6);
  Push(0, 6);
  c.core->Cancel(c.now);
  EXPECT_EQ(ends[0]->code(), Code::kOutcomeUnknown);
  EXPECT_EQ(ends[1]->code(), Code::kCancelled);
}

TEST_F(HeldTest, FramesAndRewindsOfAServerThatIsGoneStillCount) {
  c.StartAll();
  Push(3, 1);
  const Link link = c.LinkOfSlot(3);
  c.Break(link);
  c.Wait(200'000);
  c.AckPush(link, c.Take(link).header);
  EXPECT_EQ(c.core->frames_sent(), 2u);
  EXPECT_EQ(c.core->rewinds(), 1u);
  c.Kill(link.first);
  c.NewState();
  EXPECT_EQ(c.core->frames_sent(), 2u);
  EXPECT_EQ(c.core->rewinds(), 1u);
}

// Compressed, checked, stamped: pieces travel as the whole would have.
TEST_F(HeldTest, PiecesOfAFrameTravelAsItDid) {
  TableSpec spec = rows.spec;
  spec.name = "packed";
  spec.wire = WireFormat::kLz4;
  rows = c.AddTable(spec);
  c.state.slots = {{0, 0, 1, {}}, {0, 0, 1, {}}, {0, 0, 1, {}}, {1, 0, 1, {}}};
  c.StartAll();
  std::vector<RowKey> many(60);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i;
  const std::vector<int64_t> sevens(many.size(), 7);
  Submit(PreparePush({.state = c.core->state().get(),
                      .table = &rows,
                      .keys = many,
                      .values = std::as_bytes(std::span(sevens))},
                     c.pool));
  const uint64_t made_under = c.Inbox({0, 0}).at(0).header.state_version;
  c.network.hold_frames = true;
  c.Inbox({1, 0}).clear();
  c.Move(1, {1, 0});
  c.NewState();
  ASSERT_EQ(c.Inbox({1, 0}).size(), 1u) << "slot 1";
  ASSERT_EQ(c.Inbox({0, 0}).size(), 2u) << "the whole, and what is left of it";
  for (const wire::FrameHeader& piece : {c.Inbox({1, 0})[0].header, c.Inbox({0, 0})[1].header}) {
    EXPECT_NE(piece.flags & wire::kFlagValuesChecked, 0);
    EXPECT_GE(piece.state_version, made_under);
  }
  size_t pushes = 0;
  for (const wire::FramePtr& frame : c.network.held) {
    if (frame->header().type != wire::FrameType::kPush) continue;
    ++pushes;
    EXPECT_EQ(frame->coding, wire::Coding::kLz4);
  }
  EXPECT_EQ(pushes, 2u);
  // Stamped anew while the transport holds it: a head of its own, and the same values.
  c.network.held.clear();
  c.Break({1, 0});
  c.Wait(200'000);  // sent again, and held
  c.Inbox({1, 0}).clear();
  ++c.state.slots[1].epoch;
  c.state.slots[1].since = c.state.version.Next();
  c.NewState();
  wire::FramePtr stamped;
  for (const wire::FramePtr& frame : c.network.held)
    if (frame->header().type == wire::FrameType::kPush) stamped = frame;
  ASSERT_NE(stamped, nullptr);
  EXPECT_EQ(stamped->header().state_version, c.state.version.value);
  EXPECT_EQ(stamped->coding, wire::Coding::kLz4);
  stamped.reset();
  c.network.held.clear();
  c.network.hold_frames = false;
  std::vector<Buffer> reused;
  for (int i = 0; i < 8; ++i) {
    reused.push_back(c.pool.Get(512));
    std::fill_n(reused.back().data(), 512, std::byte{0xEE});
  }
  c.Break({1, 0});
  c.Inbox({1, 0}).clear();
  c.Wait(500'000);
  bool found = false;
  for (const wire::InFrame& frame : c.Inbox({1, 0})) {
    const wire::PushView push = wire::DecodePush(frame.header, frame.body()).value();
    if (push.entries.empty() || push.entries[0].slot != 1) continue;
    found = true;
    for (size_t at = 0; at < push.values.size(); at += 8) EXPECT_EQ(push.values[at], std::byte{7});
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace cairn::client

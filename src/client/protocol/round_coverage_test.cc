// A round is over when every slot says so, wherever it has moved meanwhile (docs/internals/consistency.md,
// rule 49).
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

// Three servers with one thread, six slots: 0 1 on server 0, 2 3 on 1, 4 5 on 2. The dense sync
// table has a part in each.
class CoverageTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 6 * 1024;
  static constexpr Link k0{0, 0}, k1{1, 0}, k2{2, 0}, k3{3, 0};

  CoverageTest()
      : c(3, 1, 6),
        table(c.AddTable({.name = "w", .mode = Mode::kSync, .size = kSize})),
        gradient(kSize),
        out(kSize) {
    std::iota(gradient.begin(), gradient.end(), 1.0f);
    c.answers_under = c.state.version;
  }
  PartitionInput Input(bool with_gradient, RoundPhase phase = RoundPhase::kWhole) {
    PartitionInput input{.state = c.core->state().get(), .table = &table};
    input.phase = phase;
    if (with_gradient) input.values = std::as_bytes(std::span(gradient));
    return input;
  }
  size_t Submit(Result<Request> request, int64_t timeout_us = 600'000'000) {
    request->deadline_us = c.now + timeout_us;
    request->info = &info;
    const size_t at = ends.size();
    ends.emplace_back();
    request->done = [this, at](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    c.core->Submit(std::move(*request), c.now);
    c.Run();
    return at;
  }
  size_t Mark() { return Submit(PrepareRound(Input(false), c.pool)); }
  bool Over(size_t call) const { return ends[call] && ends[call]->ok(); }
  // One frame of a link, answered under a version; 0: the newest.
  void Close(Link link, uint64_t version = 0, uint16_t flags = 0) {
    const StateVersion usual = c.answers_under;
    if (version != 0) c.answers_under = StateVersion{version};
    c.AnswerValues(link, c.Take(link), {}, Position::Of(1, 1), flags);
    c.answers_under = usual;
  }
  void CloseAll() {
    for (Link link : c.Links()) {
      while (!c.Inbox(link).empty()) Close(link);
    }
  }
  // The state that a test has changed reaches everybody.
  void NewState() {
    c.NewState();
    c.answers_under = c.state.version;
  }
  // The shards have it, this client and the scheduler's connection to it do not.
  uint64_t NewStateAtShardsOnly() {
    c.scheduler_answers = false;
    c.state.version = c.state.version.Next();
    return c.state.version.value;
  }
  void LetStateCome() {
    c.scheduler_answers = true;
    c.answers_under = c.state.version;
    c.Tick(60'000);
    ASSERT_EQ(c.core->state()->version, c.state.version);
  }
  static wire::PushView View(const wire::InFrame& frame) {
    return wire::DecodePush(frame.header, frame.body()).value();
  }
  static std::vector<uint32_t> SlotsOf(const wire::InFrame& frame) {
    std::vector<uint32_t> slots;
    for (const wire::SlotEntry& entry : View(frame).entries) slots.push_back(entry.slot);
    return slots;
  }

  FakeCluster c;
  wire::TableInfo table;
  std::vector<float> gradient, out;
  RoundInfo info;
  std::vector<std::optional<Status>> ends;
};

TEST_F(CoverageTest, WhereNothingMovesNothingIsMarkedAgain) {
  c.StartAll();
  for (int round = 0; round < 3; ++round) {
    const size_t call = Submit(PrepareRound(Input(round != 1), c.pool));
    CloseAll();
    EXPECT_TRUE(Over(call));
    c.state.slots[2].backups = {{0, 0, true, c.state.version}};  // a new state, but not a new map
    NewState();
    ASSERT_EQ(c.core->state()->version, c.state.version);
  }
  EXPECT_EQ(c.core->frames_sent(), 9u);
}

// Server 0 has answered for the slots it had; slot 2, which it gets, is still open there. Server 1
// answers for what it has left. If these answers were enough, the worker would start round 1 while
// round 0 is open in slot 2.
TEST_F(CoverageTest, AnAnswerCoversTheSlotsThatItsThreadHadThen) {
  c.StartAll();
  const size_t call = Mark();
  Close(k0);
  c.Move(2, k0);
  const uint64_t newer = NewStateAtShardsOnly();
  Close(k1, newer);
  Close(k2, newer);
  // All are answered, but by whom for slot 2, this client can't know yet.
  EXPECT_FALSE(ends[call]);
  EXPECT_EQ(c.core->next_round(table.id), Round{1});
  c.Wait(1'000'000);
  EXPECT_FALSE(ends[call]);
  LetStateCome();
  EXPECT_FALSE(ends[call]);
  ASSERT_EQ(c.Inbox(k0).size(), 1u);
  EXPECT_TRUE(c.Inbox(k1).empty());
  EXPECT_TRUE(c.Inbox(k2).empty());
  const wire::InFrame& again = c.Inbox(k0)[0];
  EXPECT_EQ(again.header.type, wire::FrameType::kDone);
  EXPECT_EQ(again.header.round, 0u);
  EXPECT_EQ(again.header.state_version, newer);
  EXPECT_EQ(View(again).done_bitmap.size(), 1u);
  Close(k0);
  EXPECT_TRUE(Over(call));
}

// The same, the other way round: the state comes first.
TEST_F(CoverageTest, AnOldAnswerThatComesLateCoversNothingNew) {
  c.StartAll();
  const size_t call = Mark();
  const uint64_t old = c.state.version.value;
  Close(k2);
  c.Move(2, k0);
  NewState();
  EXPECT_EQ(c.Inbox(k0).size(), 1u);  // its mark holds for slots that come later, too
  Close(k0, old);                     // made before it got slot 2
  Close(k1);
  EXPECT_FALSE(ends[call]);
  ASSERT_EQ(c.Inbox(k0).size(), 1u);
  Close(k0);
  EXPECT_TRUE(Over(call));
  EXPECT_TRUE(c.Inbox(k1).empty());
  EXPECT_TRUE(c.Inbox(k2).empty());
}

// A slot was away and is back: the frame is sent again with its id, and the answer to its first copy
// was made when the slot had not been away yet.
TEST_F(CoverageTest, AnAnswerToTheCopyBeforeTheMoveCoversNothingNew) {
  c.StartAll();
  const size_t call = Submit(PrepareRound(Input(true), c.pool));
  const uint64_t old = c.state.version.value;
  c.Move(2, k1);
  NewState();
  ASSERT_EQ(c.Inbox(k1).size(), 2u);
  EXPECT_EQ(c.Inbox(k1)[0].header.request_id, c.Inbox(k1)[1].header.request_id);
  Close(k1, old);
  Close(k0);
  Close(k2);
  EXPECT_FALSE(ends[call]);
  ASSERT_EQ(c.Inbox(k1).size(), 2u);
  EXPECT_EQ(c.Inbox(k1)[1].header.type, wire::FrameType::kDone);
  Close(k1);  // the second copy: its request is answered already
  EXPECT_FALSE(ends[call]);
  Close(k1);
  EXPECT_TRUE(Over(call));
}

TEST_F(CoverageTest, AnAnswerOfANewerStateWithTheSameMapOnlyWaitsForIt) {
  c.StartAll();
  const size_t call = Mark();
  const uint64_t newer = NewStateAtShardsOnly();
  Close(k0);
  Close(k1, newer);
  Close(k2, newer);
  EXPECT_FALSE(ends[call]);
  LetStateCome();
  EXPECT_TRUE(Over(call));
  for (Link link : c.Links()) EXPECT_TRUE(c.Inbox(link).empty());
}

TEST_F(CoverageTest, AServerThatJoinsIsToldOfTheOpenRound) {
  c.StartAll();
  const size_t call = Submit(PrepareRound(Input(true), c.pool));
  for (Link link : {k0, k1, k2}) EXPECT_EQ(c.Inbox(link).size(), 1u);
  c.Join(3);
  NewState();
  ASSERT_EQ(c.Inbox(k3).size(), 1u);
  const wire::InFrame mark = c.Take(k3);
  EXPECT_EQ(mark.header.type, wire::FrameType::kDone);
  // It contributes to every slot, wherever they go.
  ASSERT_EQ(View(mark).done_bitmap.size(), 1u);
  EXPECT_EQ(View(mark).done_bitmap[0], std::byte{0x3f});
  for (Link link : {k0, k1, k2}) Close(link);
  EXPECT_FALSE(ends[call]);
  c.AnswerValues(k3, mark, {}, Position::Of(1, 1));
  EXPECT_TRUE(Over(call));
  const size_t next = Mark();
  EXPECT_EQ(c.Inbox(k3).size(), 1u);
  CloseAll();
  EXPECT_TRUE(Over(next));
}

TEST_F(CoverageTest, AContributionFollowsItsSlotAndTheBitmapStaysWhole) {
  c.StartAll();
  PartitionInput input = Input(true);
  input.out = std::as_writable_bytes(std::span(out));
  input.pull_after = true;
  const size_t call = Submit(PrepareRound(input, c.pool));
  c.Inbox(k1).clear();
  c.Kill(1);  // 2 to server 0, 3 to server 2
  NewState();
  ASSERT_EQ(c.Inbox(k0).size(), 2u);
  ASSERT_EQ(c.Inbox(k2).size(), 2u);
  EXPECT_EQ(SlotsOf(c.Inbox(k0)[1]), (std::vector<uint32_t>{2}));
  EXPECT_EQ(SlotsOf(c.Inbox(k2)[1]), (std::vector<uint32_t>{3}));
  for (Link link : {k0, k2}) {
    while (!c.Inbox(link).empty()) {
      const wire::InFrame frame = c.Take(link);
      const wire::PushView push = View(frame);
      EXPECT_EQ(frame.header.flags & wire::kFlagDone, wire::kFlagDone);
      ASSERT_EQ(push.done_bitmap.size(), 1u);
      EXPECT_EQ(push.done_bitmap[0], std::byte{0x3f});
      std::vector<float> values(push.values.size() / sizeof(float));
      std::memcpy(values.data(), push.values.data(), push.values.size());
      for (float& value : values) value += 0.5f;
      const auto bytes = std::as_bytes(std::span(values));
      c.AnswerValues(link, frame, {bytes.begin(), bytes.end()}, Position::Of(2, 1));
    }
  }
  ASSERT_TRUE(Over(call));
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(out[i], gradient[i] + 0.5f) << i;
}

// The mark of a server that is gone is dropped, and whoever has its slots is marked again.
TEST_F(CoverageTest, AServerThatIsGoneNeedNotAnswer) {
  c.StartAll();
  const size_t call = Mark();
  Close(k0);
  Close(k2);
  c.Inbox(k1).clear();
  c.Kill(1);
  NewState();
  EXPECT_FALSE(ends[call]);
  EXPECT_EQ(c.Inbox(k0).size(), 1u);
  EXPECT_EQ(c.Inbox(k2).size(), 1u);
  CloseAll();
  EXPECT_TRUE(Over(call));
}

TEST_F(CoverageTest, AServerWithoutSlotsThatIsGoneEndsTheRoundWithItself) {
  c.Join(3);
  c.StartAll();
  const size_t call = Mark();
  for (Link link : {k0, k1, k2}) Close(link);
  EXPECT_FALSE(ends[call]);
  std::erase_if(c.state.servers, [](const auto& server) { return server.index == 3; });
  NewState();
  EXPECT_TRUE(Over(call));
  EXPECT_EQ(c.log.back(), "server 3 is gone; it had no partitions");
}

TEST_F(CoverageTest, WhatADeadServerAnsweredSaysNothingOfItsIndexsNextOwner) {
  c.StartAll();
  const size_t call = Mark();
  Close(k1);
  std::erase_if(c.state.servers, [](const auto& server) { return server.index == 1; });
  c.Join(1);
  for (uint32_t slot : {2, 3}) c.Move(slot, k0);
  NewState();
  ASSERT_EQ(c.Inbox(k1).size(), 1u);
  Close(k0);
  Close(k2);
  EXPECT_FALSE(ends[call]);
  Close(k1);
  EXPECT_TRUE(Over(call));
}

TEST_F(CoverageTest, ReportsOfASlotCountOnce) {
  c.StartAll();
  const size_t contribute = Submit(PrepareRound(Input(true, RoundPhase::kContribute), c.pool));
  const auto report = [&](Link link, const std::vector<uint32_t>& slots) {
    std::vector<std::pair<uint32_t, wire::SlotReport>> reports;
    for (uint32_t slot : slots) reports.push_back({slot, {1.0 + slot, 0}});
    c.AnswerReport(link, c.Take(link), reports);
  };
  report(k0, {0, 1});
  report(k1, {2, 3});
  c.Kill(1);
  NewState();
  // The whole table is reported again where slots have come to: the mark is one of the first phase.
  ASSERT_EQ(c.Inbox(k0).size(), 1u);
  EXPECT_TRUE(View(c.Inbox(k0)[0]).params.has(wire::kParamTwoPhase));
  EXPECT_FALSE(ends[contribute]);
  report(k0, {0, 1, 2});
  report(k2, {3, 4, 5});
  ASSERT_TRUE(Over(contribute));
  EXPECT_EQ(info.sum_squares, 1.0 + 2 + 3 + 4 + 5 + 6);

  PartitionInput decision = Input(false, RoundPhase::kDecide);
  decision.scale = 0.25;
  const size_t decide = Submit(PrepareRound(decision, c.pool));
  Close(k0);
  c.Move(4, k0);
  NewState();
  ASSERT_EQ(c.Inbox(k0).size(), 1u);
  EXPECT_TRUE(View(c.Inbox(k0)[0]).params.has(wire::kParamDecide));
  EXPECT_EQ(View(c.Inbox(k0)[0]).params.scale, 0.25);
  Close(k2);
  EXPECT_FALSE(ends[decide]);
  Close(k0);
  EXPECT_TRUE(Over(decide));
}

// A report of a slot that is not its thread's in our state, but was in the shard's.
TEST_F(CoverageTest, AReportMayComeFromAnotherOwnerThanOurStateSays) {
  c.StartAll();
  const size_t contribute = Submit(PrepareRound(Input(false, RoundPhase::kContribute), c.pool));
  c.Move(2, k0);
  const uint64_t newer = NewStateAtShardsOnly();
  c.answers_under = StateVersion{newer};
  c.AnswerReport(k0, c.Take(k0), {{0, {1, 0}}, {2, {3, 0}}});
  c.AnswerReport(k1, c.Take(k1), {});
  c.AnswerReport(k2, c.Take(k2), {});
  EXPECT_FALSE(ends[contribute]);
  LetStateCome();
  ASSERT_TRUE(Over(contribute));
  EXPECT_EQ(info.sum_squares, 4.0);
}

TEST_F(CoverageTest, ARefusalByAnOldOwnerIsTheOutcome) {
  c.StartAll();
  const size_t call = Mark();
  const wire::SlotEntry problem{2, static_cast<uint32_t>(Code::kHyperMismatch), 0};
  c.Answer(k1, wire::EncodeRoundRefusal(c.Take(k1).header, {&problem, 1}, "ranks differ", c.pool));
  c.Move(2, k0);
  NewState();
  CloseAll();
  ASSERT_TRUE(ends[call]);
  EXPECT_EQ(*ends[call], Status(Code::kHyperMismatch, "ranks differ"));
}

TEST_F(CoverageTest, AllHaveJoinedOnlyIfTheNewOwnerSaysSoToo) {
  c.StartAll();
  for (const bool all : {true, false}) {
    PartitionInput input = Input(false);
    input.joined = true;
    const size_t call = Submit(PrepareRound(input, c.pool));
    for (Link link : {k0, k1, k2}) Close(link, 0, wire::kFlagAllJoined);
    ASSERT_TRUE(Over(call));
    EXPECT_TRUE(info.all_joined);
    const size_t moved = Submit(PrepareRound(input, c.pool));
    Close(k0, 0, wire::kFlagAllJoined);
    c.Move(all ? 2 : 3, k0);
    NewState();
    Close(k1, 0, wire::kFlagAllJoined);
    Close(k2, 0, wire::kFlagAllJoined);
    ASSERT_FALSE(ends[moved]);
    Close(k0, 0, all ? wire::kFlagAllJoined : 0);
    ASSERT_TRUE(Over(moved));
    EXPECT_EQ(info.all_joined, all);
  }
}

TEST_F(CoverageTest, ARoundOfADroppedTableEndsWhereverItsSlotsAre) {
  c.StartAll();
  const size_t call = Mark();
  c.Move(2, k0);
  NewState();
  c.answers_under = StateVersion{1};
  for (Link link : {k0, k1, k2}) c.Error(link, c.Take(link).header, Code::kNotFound, "table 1 was dropped");
  ASSERT_TRUE(ends[call]);
  EXPECT_EQ(ends[call]->code(), Code::kNotFound);
}

// Made by a caller's thread before the map changed, sent after it.
TEST_F(CoverageTest, ARoundMadeUnderAnOlderMapIsMadeToFit) {
  c.StartAll();
  PartitionInput input = Input(true);
  Result<Request> early = PrepareRound(input, c.pool);
  Result<Request> bare = PrepareRound(Input(false), c.pool);
  c.Kill(1);
  c.Join(3);
  NewState();
  const size_t call = Submit(std::move(early));
  EXPECT_EQ(c.Inbox(k0).size(), 2u);
  EXPECT_EQ(c.Inbox(k2).size(), 2u);
  ASSERT_EQ(c.Inbox(k3).size(), 1u);
  EXPECT_EQ(c.Inbox(k3)[0].header.type, wire::FrameType::kDone);
  std::map<uint32_t, size_t> bytes;
  for (Link link : {k0, k2}) {
    for (const wire::InFrame& frame : c.Inbox(link)) {
      for (uint32_t slot : SlotsOf(frame)) EXPECT_EQ(c.LinkOfSlot(slot), link);
      bytes[link.first] += View(frame).values.size();
    }
  }
  EXPECT_EQ(bytes[0] + bytes[2], kSize * sizeof(float));
  CloseAll();
  EXPECT_TRUE(Over(call));
  const size_t marks = Submit(std::move(bare));
  for (Link link : {k0, k2, k3}) EXPECT_EQ(c.Inbox(link).size(), 1u);
  CloseAll();
  EXPECT_TRUE(Over(marks));
}

// Only when nobody can read the caller's array any more is he told that he may have it back.
TEST_F(CoverageTest, BorrowedValuesAreGivenBackWhenNoConnectionRefersToThem) {
  c.StartAll();
  c.network.hold_frames = true;  // as if nothing of them were written yet
  const size_t call = Submit(PrepareRound(Input(true), c.pool));
  const ConnId first = c.conn_of.at(k0), second = c.conn_of.at(k1), third = c.conn_of.at(k2);
  c.Move(2, k0);
  NewState();
  // Server 1 is alive, but its connection holds the frame that was cut.
  EXPECT_FALSE(c.network.conns.at(second).open);
  EXPECT_TRUE(c.network.conns.at(first).open);
  c.network.held.clear();
  c.Inbox(k1).clear();
  c.Wait(500'000);
  ASSERT_EQ(c.Inbox(k1).size(), 1u);
  EXPECT_EQ(SlotsOf(c.Inbox(k1)[0]), (std::vector<uint32_t>{3}));
  // Sent again on a new connection, which lets go of it in time.
  c.network.held.clear();
  Close(k1);
  EXPECT_TRUE(c.network.conns.at(c.conn_of.at(k1)).open);
  Close(k0);
  c.network.hold_frames = false;
  Close(k0);
  CloseAll();
  EXPECT_TRUE(Over(call));
  EXPECT_TRUE(c.network.conns.at(third).open);
}

TEST_F(CoverageTest, APieceThatItsNewConnectionStillHoldsClosesIt) {
  c.StartAll();
  Submit(PrepareRound(Input(true), c.pool));
  c.network.hold_frames = true;
  c.Move(2, k0);
  NewState();
  const ConnId first = c.conn_of.at(k0);
  ASSERT_EQ(c.Inbox(k0).size(), 2u);
  Close(k0);
  EXPECT_TRUE(c.network.conns.at(first).open);
  Close(k0);  // the piece, and it is answered while the transport holds it
  EXPECT_FALSE(c.network.conns.at(first).open);
}

TEST_F(CoverageTest, PastTheDeadlinePiecesHaveValuesOfTheirOwn) {
  c.StartAll();
  const size_t call = Submit(PrepareRound(Input(true), c.pool), 2'000'000);
  c.Move(2, k0);
  NewState();
  c.Wait(2'100'000);
  ASSERT_TRUE(ends[call]);
  EXPECT_EQ(ends[call]->code(), Code::kDeadlineExceeded);
  const std::vector<float> sent = gradient;
  std::fill(gradient.begin(), gradient.end(), -1.0f);  // the caller's again
  // And they are cut again: the frames are their own, and so are their pieces' values.
  c.Move(1, k2);
  c.Move(2, k2);
  for (auto& [link, box] : c.inbox) box.clear();
  NewState();
  for (Link link : {k0, k1, k2}) c.Break(link);
  for (auto& [link, box] : c.inbox) box.clear();
  c.Wait(1'000'000);
  double sum = 0;
  for (Link link : {k0, k1, k2}) {
    for (const wire::InFrame& frame : c.Inbox(link)) {
      const wire::PushView push = View(frame);
      std::vector<float> values(push.values.size() / sizeof(float));
      if (!values.empty()) std::memcpy(values.data(), push.values.data(), push.values.size());
      sum = std::accumulate(values.begin(), values.end(), sum);
    }
  }
  EXPECT_EQ(sum, std::accumulate(sent.begin(), sent.end(), 0.0));
  CloseAll();
  EXPECT_EQ(c.rounds.size(), 1u);
}

}  // namespace
}  // namespace cairn::client

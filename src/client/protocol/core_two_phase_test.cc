// Rounds in two phases and joined workers (docs/internals/consistency.md, rules 32 to 35): what goes out,
// what is held back or refused meanwhile, and what the caller is told.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

using Reports = std::vector<std::pair<uint32_t, wire::SlotReport>>;

class TwoPhaseTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 40'000;  // every shard thread has some
  TwoPhaseTest()
      : table(c.AddTable({.name = "w", .mode = Mode::kSync, .size = kSize})),
        gradient(kSize, 1),
        out(kSize) {}

  PartitionInput Input(RoundPhase phase) {
    PartitionInput input{.state = c.core->state().get(), .table = &table};
    input.phase = phase;
    return input;
  }
  PartitionInput Gradient(RoundPhase phase) {
    PartitionInput input = Input(phase);
    input.values = std::as_bytes(std::span(gradient));
    return input;
  }
  PartitionInput Decision() {
    PartitionInput input = Input(RoundPhase::kDecide);
    input.out = std::as_writable_bytes(std::span(out));
    input.pull_after = true;
    return input;
  }
  // Returns the index in `ends`.
  size_t Submit(Result<Request> request, RoundInfo* info = nullptr, int64_t timeout_us = 600'000'000) {
    CAIRN_CHECK(request.ok());
    request->deadline_us = c.now + timeout_us;
    request->info = info;
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
  size_t Contribute(RoundInfo* info = nullptr, int64_t timeout_us = 600'000'000) {
    return Submit(PrepareRound(Gradient(RoundPhase::kContribute), c.pool), info, timeout_us);
  }
  size_t Decide() { return Submit(PrepareRound(Decision(), c.pool)); }
  size_t Push() { return Submit(PrepareRound(Gradient(RoundPhase::kWhole), c.pool)); }

  static wire::PushView View(const wire::InFrame& frame) {
    return wire::DecodePush(frame.header, frame.body()).value();
  }
  static bool Marks(const wire::InFrame& frame) {
    return frame.header.type == wire::FrameType::kDone || (frame.header.flags & wire::kFlagDone) != 0;
  }
  // Every frame of the first phase that is here gets its answer; that with the mark, the reports of
  // the slots that this shard thread has, made by `report`.
  template <class Make>
  void SumUp(Link link, Make report, uint16_t flags = 0) {
    for (size_t left = c.Inbox(link).size(); left > 0; --left) {
      const wire::InFrame frame = c.Take(link);
      Reports reports;
      for (uint32_t slot = 0; slot < c.state.slots.size() && Marks(frame); ++slot) {
        if (c.LinkOfSlot(slot) == link) reports.emplace_back(slot, report(slot));
      }
      c.AnswerReport(link, frame, reports, flags);
    }
  }
  void SumUpAll() {
    for (Link link : c.Links()) SumUp(link, [](uint32_t) { return wire::SlotReport{1, 0}; });
  }
  // Closes whatever has come; where values are asked for they are all `value`.
  void CloseAll(float value = 0, uint16_t flags = 0) {
    for (Link link : c.Links()) Close(link, value, flags);
  }
  void Close(Link link, float value = 0, uint16_t flags = 0) {
    for (size_t left = c.Inbox(link).size(); left > 0; --left) {
      const wire::InFrame frame = c.Take(link);
      size_t elements = 0;
      const bool pull = frame.header.type == wire::FrameType::kPull;
      if (pull || (frame.header.flags & wire::kFlagPullAfter) != 0) {
        const auto entries =
            pull ? wire::DecodePull(frame.header, frame.body())->entries : View(frame).entries;
        for (const wire::SlotEntry& entry : entries) elements += entry.count;
      }
      const std::vector<float> values(elements, value);
      const auto bytes = std::as_bytes(std::span(values));
      c.AnswerValues(link, frame, {bytes.begin(), bytes.end()}, Position::Of(1, 1), flags);
    }
  }
  void Refuse(Link link, Code code, const std::string& text) {
    const wire::InFrame frame = c.Take(link);
    const wire::SlotEntry problem{0, static_cast<uint32_t>(code), 0};
    c.Answer(link, wire::EncodeRoundRefusal(frame.header, {&problem, 1}, text, c.pool));
  }
  size_t FramesThere() {
    size_t frames = 0;
    for (Link link : c.Links()) frames += c.Inbox(link).size();
    return frames;
  }

  FakeCluster c;
  wire::TableInfo table;
  std::vector<float> gradient, out;
  std::vector<std::optional<Status>> ends;
};

TEST_F(TwoPhaseTest, ReportsAreAddedInTheOrderOfSlotsWhateverTheOrderOfAnswers) {
  c.StartAll();
  RoundInfo info;
  const size_t contribute = Contribute(&info);
  // One large number and small ones: another order gives another sum.
  const auto report = [](uint32_t slot) { return wire::SlotReport{slot == 3 ? 1e16 : 1.0, 0}; };
  double expected = 0, reversed = 0;
  for (uint32_t slot = 0; slot < 16; ++slot) {
    expected += report(slot).sum_squares;
    reversed += report(15 - slot).sum_squares;
  }
  ASSERT_NE(expected, reversed);
  std::vector<Link> links = c.Links();
  std::reverse(links.begin(), links.end());
  for (Link link : links) {
    EXPECT_FALSE(ends[contribute]);
    for (const wire::InFrame& frame : c.Inbox(link)) {
      EXPECT_EQ(View(frame).params.flags, wire::kParamTwoPhase);
      EXPECT_EQ(frame.header.type, wire::FrameType::kContribute);
    }
    SumUp(link, report);
  }
  ASSERT_TRUE(ends[contribute]);
  EXPECT_TRUE(ends[contribute]->ok());
  EXPECT_EQ(info.sum_squares, expected);
  EXPECT_TRUE(info.finite);
  EXPECT_FALSE(info.all_joined);
  EXPECT_TRUE(c.rounds.empty());  // not closed yet
}

TEST_F(TwoPhaseTest, OneSlotThatIsNotFiniteIsEnough) {
  c.StartAll();
  RoundInfo info;
  Contribute(&info);
  for (Link link : c.Links())
    SumUp(link, [](uint32_t slot) { return wire::SlotReport{0.5, slot == 7 ? 1u : 0u}; });
  EXPECT_FALSE(info.finite);
  Decide();
  CloseAll();
  Contribute(&info);
  for (Link link : c.Links())
    SumUp(link, [](uint32_t) { return wire::SlotReport{std::numeric_limits<double>::max(), 0}; });
  EXPECT_FALSE(info.finite);  // the sum over the slots overflows
}

TEST_F(TwoPhaseTest, TheDecisionBelongsToTheSameRoundAndBringsTheValues) {
  c.StartAll();
  Contribute();
  SumUpAll();
  PartitionInput input = Decision();
  input.scale = 0.25;
  const size_t decide = Submit(PrepareRound(input, c.pool));
  for (Link link : c.Links()) {
    ASSERT_EQ(c.Inbox(link).size(), 1u);
    const wire::InFrame& frame = c.Inbox(link)[0];
    EXPECT_EQ(frame.header.type, wire::FrameType::kDone);
    EXPECT_EQ(frame.header.round, 0u);
    EXPECT_EQ(View(frame).params.flags, wire::kParamDecide);
    EXPECT_EQ(View(frame).params.scale, 0.25);
    EXPECT_FALSE(View(frame).entries.empty());
    for (std::byte b : View(frame).done_bitmap) EXPECT_EQ(b, std::byte{0});
  }
  EXPECT_FALSE(ends[decide]);
  CloseAll(8.5f);
  ASSERT_TRUE(ends[decide] && ends[decide]->ok());
  EXPECT_EQ(out, std::vector<float>(kSize, 8.5f));
  EXPECT_EQ(c.rounds, (std::vector<std::pair<uint64_t, Code>>{{0, Code::kOk}}));
  EXPECT_EQ(c.core->next_round(table.id), Round{1});
}

TEST_F(TwoPhaseTest, ASkipSaysSo) {
  c.StartAll();
  Contribute();
  SumUpAll();
  PartitionInput input = Decision();
  input.skip = true;
  Submit(PrepareRound(input, c.pool));
  EXPECT_EQ(View(c.Inbox({0, 0})[0]).params.flags, wire::kParamDecide | wire::kParamSkip);
}

TEST_F(TwoPhaseTest, WhatWasSubmittedMeanwhileWaitsForTheDecision) {
  c.StartAll();
  Contribute();
  const size_t second = Contribute();
  const size_t third = Push();
  SumUpAll();
  EXPECT_EQ(FramesThere(), 0u);  // round 0 is summed up, but not decided
  const size_t decide = Decide();
  for (Link link : c.Links()) {
    for (const wire::InFrame& frame : c.Inbox(link)) EXPECT_EQ(frame.header.round, 0u);
    EXPECT_FALSE(ends[decide]);
    Close(link);
  }
  ASSERT_TRUE(ends[decide] && ends[decide]->ok());
  EXPECT_FALSE(ends[second]);
  EXPECT_EQ(c.Inbox({0, 0})[0].header.round, 1u);
  SumUpAll();
  EXPECT_TRUE(ends[second] && ends[second]->ok());
  Decide();
  CloseAll();
  EXPECT_EQ(c.Inbox({0, 0})[0].header.round, 2u);
  CloseAll();
  EXPECT_TRUE(ends[third] && ends[third]->ok());
}

TEST_F(TwoPhaseTest, OutOfTurnIsRefusedInWords) {
  c.StartAll();
  const auto text = [&](size_t at) {
    EXPECT_EQ(ends[at]->code(), Code::kInvalidArgument);
    return ends[at]->message();
  };
  EXPECT_EQ(text(Decide()), "table \"w\" has no round to decide: Contribute comes first");
  Contribute();
  EXPECT_EQ(text(Decide()), "round 0 of table \"w\" is not summed up yet: wait for its Contribute");
  SumUpAll();
  EXPECT_EQ(text(Push()), "round 0 of table \"w\" waits for Decide");
  EXPECT_EQ(text(Contribute()), "round 0 of table \"w\" waits for Decide");
  const size_t decide = Decide();
  EXPECT_EQ(text(Decide()), "round 0 of table \"w\" is being decided already");
  CloseAll();
  EXPECT_TRUE(ends[decide] && ends[decide]->ok());
  EXPECT_EQ(text(Decide()), "table \"w\" has no round to decide: Contribute comes first");
  Push();
  EXPECT_EQ(c.Inbox({0, 0})[0].header.round, 1u);  // what was refused took no round
}

TEST_F(TwoPhaseTest, APullBeforeTheDecisionGivesTheValuesBeforeTheRound) {
  c.StartAll();
  Push();
  CloseAll();
  Contribute();
  SumUpAll();
  const auto pull = [&] {
    PartitionInput input = Decision();
    input.pull_after = false;
    return Submit(PreparePull(input, c.pool));
  };
  const size_t before = pull();
  EXPECT_EQ(c.Inbox({0, 0}).back().header.round, 1u);  // not 2: nobody would answer it
  CloseAll(3.0f);
  EXPECT_TRUE(ends[before] && ends[before]->ok());
  Decide();
  pull();
  EXPECT_EQ(c.Inbox({0, 0}).back().header.round, 2u);
}

TEST_F(TwoPhaseTest, AFailedContributeLeavesNothingToDecideAndNoRoundOpen) {
  c.StartAll();
  const size_t contribute = Contribute();
  Refuse({0, 0}, Code::kHyperMismatch, "ranks 0 and 1 differ in lr");
  for (Link link : c.Links()) SumUp(link, [](uint32_t) { return wire::SlotReport{1, 0}; });
  ASSERT_TRUE(ends[contribute]);
  EXPECT_EQ(*ends[contribute], Status(Code::kHyperMismatch, "ranks 0 and 1 differ in lr"));
  EXPECT_EQ(ends[Decide()]->code(), Code::kInvalidArgument);
  const size_t next = Push();
  // Three shard threads have reported and would wait for a decision: all are told to skip.
  for (Link link : c.Links()) {
    ASSERT_EQ(c.Inbox(link).size(), 1u);
    EXPECT_EQ(View(c.Inbox(link)[0]).params.flags, wire::kParamDecide | wire::kParamSkip);
    EXPECT_EQ(c.Inbox(link)[0].header.round, 0u);
  }
  Refuse({0, 0}, Code::kHyperMismatch, "ranks 0 and 1 differ in lr");
  CloseAll();
  EXPECT_EQ(c.rounds, (std::vector<std::pair<uint64_t, Code>>{{0, Code::kHyperMismatch}}));
  EXPECT_EQ(c.Inbox({0, 0})[0].header.round, 1u);
  CloseAll();
  EXPECT_TRUE(ends[next] && ends[next]->ok());
}

TEST_F(TwoPhaseTest, AContributeOfADroppedTableEnds) {
  c.StartAll();
  const size_t contribute = Contribute();
  c.state.tables.clear();
  c.NewState();
  for (Link link : c.Links()) {
    while (!c.Inbox(link).empty()) c.Error(link, c.Take(link).header, Code::kNotFound, "table w was dropped");
  }
  ASSERT_TRUE(ends[contribute]);
  EXPECT_EQ(ends[contribute]->code(), Code::kNotFound);
  EXPECT_EQ(FramesThere(), 0u);
}

TEST_F(TwoPhaseTest, PastItsDeadlineAContributeStaysAndOnlyADecideMayFollow) {
  c.StartAll();
  RoundInfo info{.sum_squares = -1};
  const size_t contribute = Contribute(&info, 5'000'000);
  c.Wait(5'500'000);
  ASSERT_TRUE(ends[contribute]);
  EXPECT_EQ(ends[contribute]->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(ends[Push()]->message(),
            "round 0 of table \"w\" waits for Decide: its Contribute was not finished in time");
  const size_t decide = Decide();
  EXPECT_FALSE(ends[decide]);
  for (Link link : c.Links()) {
    wire::InFrame last = std::move(c.Inbox(link).back());
    c.Inbox(link).pop_back();
    EXPECT_TRUE(View(last).params.has(wire::kParamDecide));  // behind the contribution
    SumUp(link, [](uint32_t) { return wire::SlotReport{1, 0}; });
    c.Inbox(link).push_back(std::move(last));
  }
  EXPECT_EQ(info.sum_squares, -1);  // the caller's again
  EXPECT_FALSE(ends[decide]);
  CloseAll(1.0f);
  EXPECT_TRUE(ends[decide] && ends[decide]->ok());
  EXPECT_EQ(out[0], 1.0f);
}

TEST_F(TwoPhaseTest, AnExpiredContributeThatIsAnsweredLaterStillWaitsForItsDecide) {
  c.StartAll();
  Contribute(nullptr, 5'000'000);
  c.Wait(5'500'000);
  SumUpAll();
  EXPECT_EQ(ends[Contribute()]->message(), "round 0 of table \"w\" waits for Decide");
  const size_t decide = Decide();
  CloseAll();
  EXPECT_TRUE(ends[decide] && ends[decide]->ok());
  Contribute();
  EXPECT_EQ(c.Inbox({0, 0})[0].header.round, 1u);
}

TEST_F(TwoPhaseTest, AnExpiredContributeThatFailsLaterLeavesTheDecisionToItsCaller) {
  c.StartAll();
  Contribute(nullptr, 5'000'000);
  c.Wait(5'500'000);
  Refuse({0, 0}, Code::kHyperMismatch, "ranks 0 and 1 differ in lr");
  SumUpAll();
  EXPECT_EQ(FramesThere(), 0u);
  const size_t decide = Decide();
  EXPECT_FALSE(ends[decide]);
  Refuse({0, 0}, Code::kHyperMismatch, "ranks 0 and 1 differ in lr");
  CloseAll();
  ASSERT_TRUE(ends[decide]);
  EXPECT_EQ(ends[decide]->code(), Code::kHyperMismatch);
}

TEST_F(TwoPhaseTest, BothPhasesAtOnceAfterADeadlineEndInAnyOrder) {
  c.StartAll();
  Contribute(nullptr, 5'000'000);
  c.Wait(5'500'000);
  const size_t decide = Decide();
  const size_t next = Push();
  for (Link link : c.Links()) {
    std::vector<wire::InFrame> frames;
    while (!c.Inbox(link).empty()) frames.push_back(c.Take(link));
    std::reverse(frames.begin(), frames.end());  // the decision's answer first
    for (const wire::InFrame& frame : frames) {
      if (!View(frame).params.has(wire::kParamDecide)) {
        c.AnswerReport(link, frame, {});  // after the close: nothing to report
        continue;
      }
      size_t elements = 0;
      for (const wire::SlotEntry& entry : View(frame).entries) elements += entry.count;
      c.AnswerValues(link, frame, std::vector<std::byte>(elements * sizeof(float)), Position::Of(1, 1));
    }
    EXPECT_EQ(ends[decide].has_value(), link == c.Links().back());
  }
  EXPECT_TRUE(ends[decide] && ends[decide]->ok());
  EXPECT_EQ(c.Inbox({0, 0})[0].header.round, 1u);
  CloseAll();
  EXPECT_TRUE(ends[next] && ends[next]->ok());
}

TEST_F(TwoPhaseTest, AGradientThatIsNotFiniteIsOnlySaid) {
  c.StartAll();
  PartitionInput input = Gradient(RoundPhase::kContribute);
  input.not_finite = true;
  Submit(PrepareRound(input, c.pool));
  for (Link link : c.Links()) {
    ASSERT_EQ(c.Inbox(link).size(), 1u);
    EXPECT_EQ(c.Inbox(link)[0].header.type, wire::FrameType::kDone);
    EXPECT_EQ(View(c.Inbox(link)[0]).params.flags, wire::kParamTwoPhase | wire::kParamNotFinite);
  }
}

TEST_F(TwoPhaseTest, WhoHasJoinedMarksBothPhasesAndDecidesNothing) {
  c.StartAll();
  RoundInfo info;
  PartitionInput input = Input(RoundPhase::kContribute);
  input.joined = true;
  input.weight = 7;
  const size_t contribute = Submit(PrepareRound(input, c.pool), &info);
  for (Link link : c.Links()) {
    EXPECT_EQ(View(c.Inbox(link)[0]).params.flags, wire::kParamTwoPhase | wire::kParamJoined);
    EXPECT_EQ(View(c.Inbox(link)[0]).params.weight, 0.0);
    c.AnswerReport(link, c.Take(link), {});  // closed meanwhile: a report of nothing
  }
  ASSERT_TRUE(ends[contribute] && ends[contribute]->ok());
  EXPECT_EQ(info.sum_squares, 0.0);
  PartitionInput decision = Decision();
  decision.joined = true;
  const size_t decide = Submit(PrepareRound(decision, c.pool));
  EXPECT_EQ(View(c.Inbox({0, 0})[0]).params.flags, wire::kParamJoined);
  CloseAll(2.0f);
  EXPECT_TRUE(ends[decide] && ends[decide]->ok());
  EXPECT_EQ(out[0], 2.0f);
  // One who has contributed is awaited: it can't join in the middle.
  Contribute();
  SumUpAll();
  EXPECT_EQ(ends[Submit(PrepareRound(decision, c.pool))]->code(), Code::kInvalidArgument);
  Decide();
  CloseAll();
  EXPECT_EQ(c.rounds.size(), 2u);
}

TEST_F(TwoPhaseTest, AllHaveJoinedOnlyIfEveryShardThreadSaysSo) {
  c.StartAll();
  for (const Link& odd_one : {Link{9, 9}, Link{1, 0}}) {
    RoundInfo info;
    PartitionInput input = Gradient(RoundPhase::kWhole);  // which is not sent
    input.joined = true;
    input.out = std::as_writable_bytes(std::span(out));
    input.pull_after = true;
    const size_t round = Submit(PrepareRound(input, c.pool), &info);
    for (Link link : c.Links()) {
      EXPECT_EQ(c.Inbox(link)[0].header.type, wire::FrameType::kDone);
      Close(link, 1.5f, link == odd_one ? 0 : wire::kFlagAllJoined);
    }
    ASSERT_TRUE(ends[round] && ends[round]->ok());
    EXPECT_EQ(info.all_joined, odd_one == Link(9, 9));
    EXPECT_EQ(out, std::vector<float>(kSize, 1.5f));
  }
}

TEST_F(TwoPhaseTest, ReportsThatCanNotBeAreNotTaken) {
  c.StartAll();
  const size_t contribute = Contribute();
  for (const uint32_t slot : {uint32_t{15}, uint32_t{999}}) {  // another thread's; nobody's
    ASSERT_NE(c.LinkOfSlot(15), (Link{0, 0}));
    const ConnId before = c.conn_of.at({0, 0});
    c.AnswerReport({0, 0}, c.Take({0, 0}), {{slot, {1, 0}}});
    c.Inbox({0, 0}).clear();
    c.Wait(100'000);
    EXPECT_NE(c.conn_of.at({0, 0}), before) << slot;
  }
  SumUpAll();
  EXPECT_TRUE(ends[contribute] && ends[contribute]->ok());
  // A report where nobody asked for one.
  Decide();
  const ConnId before = c.conn_of.at({0, 0});
  c.AnswerReport({0, 0}, c.Take({0, 0}), {});
  c.Wait(100'000);
  EXPECT_NE(c.conn_of.at({0, 0}), before);
}

}  // namespace
}  // namespace cairn::client

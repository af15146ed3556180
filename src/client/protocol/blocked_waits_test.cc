// What a worker tells the scheduler while all of its calls wait for other workers, and how they end when
// those wait for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class BlockedTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 40'000;
  BlockedTest()
      : table(c.AddTable({.name = "w", .mode = Mode::kSync, .size = kSize})),
        other(c.AddTable({.name = "a", .size = kSize})),
        values(kSize) {
    c.options.program_waits = [this](int64_t) { return waits; };
    c.StartAll();
  }
  void Submit(Result<Request> request) {
    ASSERT_TRUE(request.ok()) << request.status().ToString();
    request->deadline_us = c.now + 600'000'000;
    const size_t at = ends.size();
    ends.emplace_back();
    request->done = [this, at](Status s) { ends[at] = s; };
    c.core->Submit(std::move(*request), c.now);
    c.Run();
  }
  PartitionInput Input(const wire::TableInfo& info) {
    return {.state = c.core->state().get(), .table = &info, .values = std::as_bytes(std::span(values))};
  }
  void StartRound() { Submit(PrepareRound(Input(table), c.pool)); }
  void EnterBarrier() {
    ends.emplace_back();
    c.core->Barrier(c.now + 600'000'000, [this, at = ends.size() - 1](Status s) { ends[at] = s; }, c.now);
    c.Run();
  }
  void SayMissing(std::vector<uint32_t> ranks) {
    for (Link link : c.Links())
      for (const wire::InFrame& frame : c.Inbox(link))
        if (TableId{frame.header.table} == table.id)
          c.Say(c.conn_of.at(link), wire::StillWaiting{frame.header.request_id, table.id, Round{0}, ranks});
  }
  // The last report of the next two seconds.
  std::optional<wire::Blocked> Report() {
    c.heard.clear();
    c.Wait(2'000'000);
    std::optional<wire::Blocked> last;
    for (const wire::ControlMessage& message : c.heard)
      if (const auto* report = std::get_if<wire::Blocked>(&message)) last = *report;
    return last;
  }

  FakeCluster c;
  wire::TableInfo table, other;
  std::vector<float> values;
  std::vector<std::optional<Status>> ends;
  bool waits = true;
};

TEST_F(BlockedTest, ARoundThatWaitsForRanksIsReportedAndEndsWithTheVerdict) {
  StartRound();
  EXPECT_FALSE(Report()) << "nobody has said that a worker is missing";
  SayMissing({1});
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->incarnation, c.core->incarnation());
  EXPECT_EQ(report->barrier, 0u);
  EXPECT_EQ(report->ranks, std::vector<uint32_t>{1});
  EXPECT_EQ(report->what, "round 0 of table \"w\"");
  EXPECT_EQ(Report()->serial, report->serial) << "the same wait";
  c.Say(c.SchedulerConn(), wire::Deadlock{report->serial + 2, "of another wait"});
  EXPECT_FALSE(ends[0]);
  c.Say(c.SchedulerConn(), wire::Deadlock{report->serial, "rank 1 is in a barrier"});
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(ends[0]->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(ends[0]->message(), "rank 1 is in a barrier");
  EXPECT_FALSE(Report()) << "nothing waits any more";
}

TEST_F(BlockedTest, ABarrierIsReportedAndEndsToo) {
  EnterBarrier();
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->barrier, 1u);
  EXPECT_TRUE(report->ranks.empty());
  c.Say(c.SchedulerConn(), wire::Deadlock{report->serial, "rank 1 waits for a round"});
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(ends[0]->code(), Code::kDeadlineExceeded);
  EnterBarrier();
  c.Wait(1'100'000);
  EXPECT_EQ(c.barrier_count, 1u) << "it is in the barrier as before";
}

TEST_F(BlockedTest, WhateverElseIsUnderWayMayEndIt) {
  StartRound();
  SayMissing({1});
  ASSERT_TRUE(Report());
  waits = false;  // the program computes
  EXPECT_FALSE(Report());
  waits = true;
  Submit(PreparePush(Input(other), c.pool));  // a server will answer this one
  EXPECT_FALSE(Report());
  for (Link link : c.Links()) {
    std::vector<wire::FrameHeader> pushes;
    for (const wire::InFrame& frame : c.Inbox(link))
      if (TableId{frame.header.table} == other.id) pushes.push_back(frame.header);
    for (const wire::FrameHeader& push : pushes) c.AckPush(link, push);
  }
  ASSERT_TRUE(Report());
  c.tables_answered = false;
  c.core->CreateTable({.name = "x", .size = 4}, c.now + 600'000'000, [](auto) {}, c.now);
  EXPECT_FALSE(Report()) << "the scheduler will answer";
}

TEST_F(BlockedTest, AnotherWaitIsAnotherReport) {
  StartRound();
  SayMissing({1});
  const auto first = Report();
  SayMissing({0, 1});
  const auto second = Report();
  EnterBarrier();
  const auto third = Report();
  ASSERT_TRUE(first && second && third);
  EXPECT_NE(first->serial, second->serial);
  EXPECT_NE(second->serial, third->serial);
  EXPECT_EQ(third->barrier, 1u);
  EXPECT_EQ(third->ranks, (std::vector<uint32_t>{0, 1}));
  SayMissing({0});  // only ourselves: something does not get through
  EXPECT_FALSE(Report());
}

// What was given stays given after the verdict, so a leave waits for it: that is a wait for others too.
TEST_F(BlockedTest, ALeaveThatWaitsForARoundIsReportedAndEndsToo) {
  StartRound();
  SayMissing({1});
  const auto round = Report();
  ASSERT_TRUE(round);
  c.Say(c.SchedulerConn(), wire::Deadlock{round->serial, "rank 1 is in a barrier"});
  ASSERT_TRUE(ends[0]);
  waits = false;  // it does not matter what the program does: nothing can begin any more
  std::optional<Status> left;
  const auto leave = [&] {
    left.reset();
    c.core->Leave(c.now + 600'000'000, [&](Status s) { left = s; }, c.now);
  };
  leave();
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->ranks, std::vector<uint32_t>{1});
  EXPECT_EQ(report->what, "round 0 of table \"w\" before it leaves");
  EXPECT_NE(report->serial, round->serial);
  c.Say(c.SchedulerConn(), wire::Deadlock{report->serial, "rank 0 waits for round 0"});
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(left->message(), "rank 0 waits for round 0");
  EXPECT_FALSE(Report()) << "it has not left, and nothing waits";
  leave();
  EXPECT_TRUE(Report()) << "it may be tried again";
  EXPECT_FALSE(left);
}

// Another round, of another table: with `ranks` missing there.
class BlockedTwiceTest : public BlockedTest {
 protected:
  BlockedTwiceTest() : second(c.AddTable({.name = "v", .mode = Mode::kSync, .size = kSize})) {
    c.NewState();
    StartRound();
    Submit(PrepareRound(Input(second), c.pool));
  }
  void SayMissingIn(const wire::TableInfo& info, const std::vector<uint32_t>& ranks) {
    for (Link link : c.Links())
      for (const wire::InFrame& frame : c.Inbox(link))
        if (TableId{frame.header.table} == info.id)
          c.Say(c.conn_of.at(link), wire::StillWaiting{frame.header.request_id, info.id, Round{0}, ranks});
  }
  wire::TableInfo second;
};

TEST_F(BlockedTwiceTest, ThoseAreNamedWhomAllRoundsWaitFor) {
  SayMissingIn(table, {3, 1, 2});
  SayMissingIn(second, {5, 3, 2});
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->ranks, (std::vector<uint32_t>{2, 3}));
  SayMissingIn(second, {5});
  EXPECT_FALSE(Report()) << "nobody can end both";
}

TEST_F(BlockedTwiceTest, OneThatEndsChangesTheReportAndAVerdictEndsAll) {
  SayMissingIn(table, {1});
  SayMissingIn(second, {1});
  const auto both = Report();
  ASSERT_TRUE(both);
  for (Link link : c.Links()) {
    const wire::InFrame first = c.Take(link);
    ASSERT_EQ(TableId{first.header.table}, table.id);
    c.AnswerValues(link, first, {}, Position::Of(1, 1));
  }
  ASSERT_TRUE(ends[0]);
  const auto one = Report();
  ASSERT_TRUE(one);
  EXPECT_NE(one->serial, both->serial);
  StartRound();
  SayMissingIn(table, {1});
  const auto again = Report();
  ASSERT_TRUE(again);
  EXPECT_NE(again->serial, both->serial) << "it is another round";
  c.Say(c.SchedulerConn(), wire::Deadlock{again->serial, "they wait for each other"});
  for (size_t call : {1, 2}) {
    ASSERT_TRUE(ends[call]) << call;
    EXPECT_EQ(ends[call]->message(), "they wait for each other");
  }
}

TEST_F(BlockedTest, WhatComesAndGoesMeanwhileChangesTheReport) {
  StartRound();
  SayMissing({1});
  const auto first = Report();
  Submit(PreparePush(Input(other), c.pool));
  for (Link link : c.Links()) {
    std::vector<wire::FrameHeader> pushes;
    for (const wire::InFrame& frame : c.Inbox(link))
      if (TableId{frame.header.table} == other.id) pushes.push_back(frame.header);
    for (const wire::FrameHeader& push : pushes) c.AckPush(link, push);
  }
  const auto second = Report();
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->serial, second->serial) << "the program has gone on";
}

TEST_F(BlockedTest, ARoundBehindAnotherOneWaitsForTheSame) {
  StartRound();
  StartRound();
  SayMissing({1});
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->what, "round 0 of table \"w\"");
  const auto reports = std::count_if(c.heard.begin(), c.heard.end(),
                                     [](const auto& m) { return std::holds_alternative<wire::Blocked>(m); });
  EXPECT_LE(reports, 3) << "one every heartbeat";
}

}  // namespace
}  // namespace cairn::client

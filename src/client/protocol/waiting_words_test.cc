// What a user reads while a call waits, and when it ends at its deadline.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class WordsTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 40'000;  // every shard thread has a frame of it
  WordsTest()
      : sync(c.AddTable({.name = "w", .mode = Mode::kSync, .size = kSize})),
        async(c.AddTable({.name = "a", .size = kSize})),
        values(kSize),
        out(kSize) {}
  PartitionInput Input(const wire::TableInfo& info) {
    return {.state = c.core->state().get(),
            .table = &info,
            .values = std::as_bytes(std::span(values)),
            .out = std::as_writable_bytes(std::span(out))};
  }
  void Submit(Result<Request> request, int64_t timeout_us) {
    ASSERT_TRUE(request.ok()) << request.status().ToString();
    request->deadline_us = c.now + timeout_us;
    request->done = [this, at = ends.size()](Status s) { ends[at] = s; };
    ends.emplace_back();
    c.core->Submit(std::move(*request), c.now);
    c.Run();
  }
  void Push(int64_t timeout_us = 600'000'000) { Submit(PreparePush(Input(async), c.pool), timeout_us); }
  void StartRound(int64_t timeout_us = 600'000'000) { Submit(PrepareRound(Input(sync), c.pool), timeout_us); }
  void Pull(PartitionInput input, int64_t timeout_us) { Submit(PreparePull(input, c.pool), timeout_us); }
  // Every shard thread says of what it has got that it is kept there.
  void SayWaiting(std::vector<uint32_t> ranks, const std::string& for_whom = "") {
    for (Link link : c.Links())
      for (const wire::InFrame& frame : c.Inbox(link))
        c.Say(c.conn_of.at(link), wire::StillWaiting{frame.header.request_id, TableId{frame.header.table},
                                                     Round{0}, ranks, for_whom});
  }
  void Barrier(int64_t timeout_us) {
    ends.emplace_back();
    c.core->Barrier(c.now + timeout_us, [this, at = ends.size() - 1](Status s) { ends[at] = s; }, c.now);
    c.Run();
  }
  std::string Text(size_t call) const { return ends.at(call) ? ends[call]->message() : "it has not ended"; }
  bool Says(size_t call, const std::string& words) const {
    return Text(call).find(words) != std::string::npos;
  }

  FakeCluster c;
  wire::TableInfo sync, async;
  std::vector<float> values, out;
  std::vector<std::optional<Status>> ends;
};

TEST_F(WordsTest, WhatAShardSaidLastCounts) {
  c.StartAll();
  StartRound(4'000'000);
  SayWaiting({1});
  c.Wait(2'000'000);
  SayWaiting({}, "server 1 thread 0 to confirm");
  c.Wait(2'500'000);
  EXPECT_TRUE(Says(0, "no answer from server 0 thread 0")) << Text(0);
  EXPECT_TRUE(Says(0, ", which waits for server 1 thread 0 to confirm")) << Text(0);
}

TEST_F(WordsTest, IfOnlyThisWorkerIsMissingSomethingDoesNotGetThrough) {
  c.StartAll();
  StartRound(2'000'000);
  SayWaiting({0});
  c.Wait(2'500'000);
  EXPECT_TRUE(Says(0, "no answer from server 0 thread 0")) << Text(0);
}

TEST_F(WordsTest, AfterThreeThreadsTheOthersAreCounted) {
  c.StartAll();
  Push(2'000'000);
  c.Wait(2'500'000);
  EXPECT_TRUE(Says(0, "server 1 thread 0 at 10.0.0.1:7000 and 1 more")) << Text(0);
}

TEST_F(WordsTest, AThreadThatOwesSeveralAnswersIsNamedOnce) {
  FakeCluster one(1, 1, 8);
  const wire::TableInfo large = one.AddTable({.name = "l", .size = 8 * 64 * 1024});
  one.StartAll();
  const std::vector<float> gradient(8 * 64 * 1024);
  Request push =
      PreparePush(
          {.state = one.core->state().get(), .table = &large, .values = std::as_bytes(std::span(gradient))},
          one.pool)
          .value();
  ASSERT_GE(push.parts.size(), 4u);
  std::string told;
  push.deadline_us = one.now + 2'000'000;
  push.done = [&](const Status& s) { told = s.message(); };
  one.core->Submit(std::move(push), one.now);
  one.Wait(2'500'000);
  EXPECT_EQ(told,
            "a push to table \"l\" was not finished in time: no answer from server 0 thread 0 at "
            "10.0.0.0:7000; it may still be applied");
}

TEST_F(WordsTest, APullOfValuesThatNobodyAssignedNamesAServerThatIsAway) {
  c.StartAll();
  c.greets = false;
  c.Break({0, 0});
  PartitionInput input = Input(async);
  input.when_assigned = true;
  Pull(input, 2'000'000);
  c.Wait(2'500'000);
  EXPECT_TRUE(Says(0, "no answer from server 0 thread 0")) << Text(0);
}

TEST_F(WordsTest, APullNamesTheRoundBeforeIt) {
  c.StartAll();
  StartRound();
  Pull(Input(sync), 2'000'000);
  c.Wait(2'500'000);
  EXPECT_TRUE(Says(1, "a pull of table \"w\" after round 0 was not finished")) << Text(1);
}

TEST_F(WordsTest, ASilentSchedulersOldWordsDoNotComeFirst) {
  c.awaiting = "too few copies";
  c.blocked_slots = 3;
  c.StartAll();
  c.Wait(1'500'000);
  c.scheduler_answers = false;
  Push(9'000'000);
  c.Wait(9'500'000);
  EXPECT_LT(Text(0).find("no answer from server"), Text(0).find("no answer from the scheduler")) << Text(0);
  EXPECT_FALSE(Says(0, "too few copies")) << Text(0);
}

TEST_F(WordsTest, HowLongTheSchedulerIsSilentIsSaidInSeconds) {
  c.awaiting = "barrier 1: rank 1 has not arrived";
  c.StartAll();
  c.Wait(1'500'000);
  c.scheduler_answers = false;
  Barrier(3'500'000);
  Barrier(12'000'000);
  c.Wait(12'500'000);
  EXPECT_TRUE(Says(0, "rank 1 has not arrived")) << "it may only be slow: " << Text(0);
  EXPECT_TRUE(Says(1, " for 12 s") || Says(1, " for 13 s")) << Text(1);
}

TEST_F(WordsTest, WhatWaitsIsLoggedEveryTenSecondsAndNotBefore) {
  c.StartAll();
  c.Wait(9'000'000);
  Push();
  c.Wait(2'000'000);
  EXPECT_TRUE(c.log.empty()) << "it has just begun";
  c.Wait(30'000'000);
  EXPECT_EQ(c.log.size(), 3u);
}

TEST_F(WordsTest, WhatHasEndedIsNotLogged) {
  c.StartAll();
  Push(1'000'000);
  c.Wait(25'000'000);
  EXPECT_TRUE(ends[0]);
  EXPECT_TRUE(c.log.empty()) << c.log[0];
}

TEST_F(WordsTest, SomeInABarrierAndOthersMissing) {
  c.state.workers.push_back({Rank{2}, Incarnation{9}, ViewNumber{1}, {}});
  c.state.next_incarnation = Incarnation{10};
  c.awaiting = "barrier 1: ranks 0, 2 have not arrived";
  c.StartAll();
  StartRound();
  for (int i = 0; i < 4; ++i) {
    c.Wait(2'700'000);
    SayWaiting({1, 2});
  }
  ASSERT_FALSE(c.log.empty());
  EXPECT_EQ(c.log[0],
            "rank 0 waits for round 0 of table \"w\": ranks 1, 2 are missing; rank 1 is in a barrier");
}

TEST_F(WordsTest, CallsToTheSchedulerAreLoggedToo) {
  c.StartAll();
  c.tables_answered = c.leave_answered = false;
  c.Wait(9'000'000);
  Barrier(15'000'000);
  c.Wait(2'000'000);
  EXPECT_TRUE(c.log.empty()) << "it has just begun: " << c.log[0];
  c.Wait(9'500'000);
  ASSERT_EQ(c.log.size(), 1u);
  EXPECT_EQ(c.log[0], "rank 0 waits at barrier 1");
  c.core->CreateTable({.name = "x", .size = 4}, c.now + 21'000'000, [](auto) {}, c.now);
  c.Wait(20'000'000);
  EXPECT_EQ(c.log.back(), "rank 0 waits for creating table \"x\"");
  c.core->Leave(c.now + 600'000'000, [](auto) {}, c.now);
  c.Wait(20'000'000);
  EXPECT_TRUE(c.log.back().starts_with("rank 0 waits to leave the job")) << c.log.back();
}

TEST_F(WordsTest, ASchedulerThatSaysNothingElseHasNotAnswered) {
  c.StartAll();
  c.tables_answered = false;
  Status made;
  c.core->CreateTable({.name = "x", .size = 4}, c.now + 1'000'000, [&](auto r) { made = r.status(); }, c.now);
  c.Wait(1'500'000);
  EXPECT_EQ(made.message(), "creating table \"x\" was not finished in time: the scheduler has not answered");
}

TEST_F(WordsTest, AStartSaysItsOwn) {
  c.state.workers[0].join_view = ViewNumber{0};
  c.tables_answered = false;
  c.Make();
  c.core->Start(c.now + 25'000'000, [this](Status s) { c.started = s; }, c.now);
  c.core->CreateTable({.name = "x", .size = 4}, c.now + 60'000'000, [](auto) {}, c.now);
  std::optional<Status> second;
  c.core->Start(c.now + 5'000'000, [&](Status s) { second = s; }, c.now);
  EXPECT_TRUE(second && second->code() == Code::kInvalidArgument) << "one Start at a time";
  c.Wait(24'000'000);
  EXPECT_FALSE(c.started);
  EXPECT_LE(c.log.size(), 8u);
  for (const std::string& line : c.log) EXPECT_EQ(line, "waiting for the scheduler to let this worker in");
  c.Wait(2'000'000);
  ASSERT_TRUE(c.started);
  EXPECT_EQ(c.started->message(),
            "the client could not start in time: waiting for the scheduler to let this worker in");
}

TEST_F(WordsTest, AStartThatIsNotRegisteredHasTheSchedulersReason) {
  c.scheduler_answers = false;
  c.Make();
  c.core->Start(c.now + 2'000'000, [this](Status s) { c.started = s; }, c.now);
  c.Run();
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kUnavailable, "not yet"});
  c.Wait(2'500'000);
  ASSERT_TRUE(c.started);
  EXPECT_EQ(c.started->message(),
            "the client could not start in time: the scheduler at 127.0.0.1:8118 has not registered this "
            "worker yet: not yet");
}

TEST_F(WordsTest, HeartbeatsSayWhatThisWorkerHasDone) {
  c.StartAll();
  Push();
  Pull(Input(async), 600'000'000);
  StartRound();
  for (Link link : c.Links()) {
    while (!c.Inbox(link).empty()) {
      const wire::InFrame frame = c.Take(link);
      if (frame.header.type == wire::FrameType::kPush) {
        c.AckPush(link, frame.header);
      } else if (frame.header.type == wire::FrameType::kPull) {
        size_t elements = 0;
        const auto pull = wire::DecodePull(frame.header, frame.body());
        for (const auto& entry : pull->entries) elements += entry.count;
        c.AnswerValues(link, frame, std::vector<std::byte>(elements * 4), Position::Of(1, 1));
      } else {
        c.AnswerValues(link, frame, {}, Position::Of(1, 1));
      }
    }
  }
  for (const auto& end : ends) EXPECT_TRUE(end && end->ok());
  c.greets = false;
  c.Break({0, 1});
  c.heard.clear();
  c.Wait(1'500'000);
  ASSERT_FALSE(c.heard.empty());
  const auto& beat = std::get<wire::Heartbeat>(c.heard.back());
  EXPECT_EQ(beat.uid, c.options.uid);
  EXPECT_EQ(beat.stats.pushes, 1u);
  EXPECT_EQ(beat.stats.pulls, 1u);
  EXPECT_EQ(beat.stats.rounds, 1u);
  EXPECT_EQ(beat.stats.connections, 3u);
}

}  // namespace
}  // namespace cairn::client

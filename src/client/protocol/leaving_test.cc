// A worker that leaves: what is refused meanwhile, whose word counts as the answer, and how long it waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

constexpr int64_t kLong = 1'800'000'000;

class LeavingTest : public ::testing::Test {
 protected:
  LeavingTest() : table(c.AddTable({.name = "w", .element = ElementType::kInt64, .size = 8})) {
    c.StartAll();
    c.leave_answered = false;
  }
  void Leave(int64_t timeout_us = kLong) {
    left.reset();
    c.core->Leave(c.now + timeout_us, [this](Status s) { left = s; }, c.now);
    c.Run();
  }
  // Where it waits to be acknowledged.
  Link Push() {
    const std::vector<int64_t> values(8, 1);
    Request push =
        PreparePush(
            {.state = c.core->state().get(), .table = &table, .values = std::as_bytes(std::span(values))},
            c.pool)
            .value();
    const Link link{push.parts[0].server, push.parts[0].thread};
    push.deadline_us = c.now + kLong;
    push.done = [this](Status s) { pushed = s; };
    c.core->Submit(std::move(push), c.now);
    c.Run();
    return link;
  }
  Status Barrier() {
    Status ended;
    c.core->Barrier(c.now + 60'000'000, [&](Status s) { ended = s; }, c.now);
    c.core->OnTick(c.now);
    return ended;
  }
  void LoseScheduler() {
    c.connects = false;
    const ConnId conn = c.SchedulerConn();
    c.network.conns.at(conn).open = false;
    c.core->OnDisconnect(conn, c.now);
  }
  template <class Message>
  long Heard() const {
    return std::count_if(c.heard.begin(), c.heard.end(),
                         [](const auto& m) { return std::holds_alternative<Message>(m); });
  }

  FakeCluster c;
  wire::TableInfo table;
  std::optional<Status> left, pushed;
};

TEST_F(LeavingTest, RefusedAgainAndAgainItIsDead) {
  Leave();
  const wire::Refusal retired{0, Code::kRetired, "incarnation 7 was declared dead"};
  c.Say(c.SchedulerConn(), retired);
  c.Say(c.conn_of.at({0, 0}), retired);  // a shard thread may be the one that says it
  EXPECT_FALSE(left) << "the answer may be on its way";
  c.Say(c.SchedulerConn(), retired);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kRetired);
}

TEST_F(LeavingTest, WhoIsGoneAndNotAmongThoseThatAreDoneIsDead) {
  Leave();
  c.state.workers.erase(c.state.workers.begin());
  c.state.done_ranks = {1};
  c.NewState();
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kRetired);
}

TEST_F(LeavingTest, AJobThatFailsIsSaidToHaveFailedAlsoIfThisWorkerIsGone) {
  Leave();
  c.state.workers.erase(c.state.workers.begin());
  c.state.phase = wire::Phase::kFailed;
  c.state.failure = "server 1 was lost";
  c.NewState();
  ASSERT_TRUE(left);
  EXPECT_EQ(*left, Status(Code::kJobFailed, "server 1 was lost"));
}

TEST_F(LeavingTest, NothingElseBeginsMeanwhileAndOneLeaveIsEnough) {
  const Link link = Push();
  Leave();
  EXPECT_EQ(Barrier().message(), "this worker is leaving the job");
  std::optional<Status> second;
  c.core->Leave(c.now + kLong, [&](Status s) { second = s; }, c.now);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->code(), Code::kInvalidArgument);
  EXPECT_FALSE(left);
  c.leave_answered = true;
  c.AckPush(link, c.Take(link).header);
  EXPECT_TRUE(left && left->ok());
}

TEST_F(LeavingTest, OneThatTimedOutBeforeItWasSentHasNotHappened) {
  const Link link = Push();
  Leave(1'000'000);
  c.Wait(1'500'000);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kDeadlineExceeded);
  EXPECT_NE(left->message().find("not everything is acknowledged"), std::string::npos) << left->message();
  EXPECT_TRUE(Barrier().ok()) << "it works on";
  c.AckPush(link, c.Take(link).header);
  EXPECT_EQ(Heard<wire::Leave>(), 0);
}

TEST_F(LeavingTest, WhoHasSaidGoodbyeIsSilent) {
  Leave();
  c.heard.clear();
  c.Wait(3'500'000);
  EXPECT_EQ(Heard<wire::Heartbeat>(), 0);
  EXPECT_GE(Heard<wire::Leave>(), 3);
}

TEST_F(LeavingTest, AnotherWorkersAnswerIsNotOurs) {
  Leave();
  c.Say(c.SchedulerConn(), wire::LeaveReply{Incarnation{8}});
  EXPECT_FALSE(left);
  c.Say(c.SchedulerConn(), wire::LeaveReply{Incarnation{7}});
  EXPECT_TRUE(left && left->ok());
}

TEST_F(LeavingTest, ASchedulerThatComesAndGoesIsAwaitedAMinuteEachTime) {
  Leave();
  LoseScheduler();
  c.Wait(40'000'000);
  c.connects = true;
  c.Wait(3'000'000);
  LoseScheduler();
  c.Wait(40'000'000);
  EXPECT_FALSE(left);
  c.Wait(25'000'000);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kOutcomeUnknown);
  Leave();
  c.Wait(40'000'000);
  EXPECT_FALSE(left) << "asked to wait again, it does";
}

TEST_F(LeavingTest, WhileSomethingIsNotAcknowledgedItIsNotAbandoned) {
  Push();
  Leave();
  LoseScheduler();
  c.Wait(100'000'000, 1'000'000);
  EXPECT_FALSE(left);
}

TEST_F(LeavingTest, TheEndOfAllCallsIsItsEndToo) {
  Leave();
  c.core->Cancel(c.now);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kCancelled);
}

}  // namespace
}  // namespace cairn::client

// Joining a running job, barriers (rules 6 and 9).
#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

struct Running : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 2)};
  FakeNode s0, s1, w0, w1;
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  }
  TableId Create(const std::string& name, uint64_t request) {
    c.Tell(w0.conn, wire::CreateTable{request, w0.incarnation, DenseSync(name)});
    c.Beat(s0), c.Beat(s1);
    return c.Last<wire::TableReply>(w0.conn)->table;
  }
};

TEST_F(Running, JoinIsIntentThenPick) {
  const TableId table = Create("w", 1);
  FakeNode w2 = c.Worker(3);
  EXPECT_EQ(w2.rank, 2u);
  EXPECT_EQ(c.state().pending_view, ViewNumber(2));
  EXPECT_EQ(c.state().view, ViewNumber(1));
  c.Beat(w2);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w2.conn)->awaiting,
            "view 2: servers 0, 1 have not reported the open rounds");
  c.Beat(s0, true, {{table, Round(7)}});
  EXPECT_EQ(c.state().pending_view, ViewNumber(2)) << "one server is not enough";
  c.Beat(s1, true, {{table, Round(9)}});
  EXPECT_EQ(c.state().pending_view, ViewNumber(0));
  EXPECT_EQ(c.state().view, ViewNumber(2));
  ASSERT_NE(c.state().FindView(ViewNumber(2)), nullptr);
  EXPECT_EQ(c.state().FindView(ViewNumber(2))->starts, (std::vector<wire::TableRound>{{table, Round(9)}}));
  EXPECT_EQ(c.state().FindWorker(w2.incarnation)->join_view, ViewNumber(2));
  EXPECT_TRUE(c.Logged("view 2: rank 2 joined"));
}

TEST_F(Running, ReportsOfAnEarlierViewDoNotCount) {
  const TableId table = Create("w", 1);
  FakeNode w2 = c.Worker(3);
  c.Beat(s0, true, {{table, Round(1)}}), c.Beat(s1, true, {{table, Round(1)}});
  ASSERT_EQ(c.state().view, ViewNumber(2));
  FakeNode w3 = c.Worker(4);
  ASSERT_EQ(c.state().pending_view, ViewNumber(3));
  s0.beat.hold_view = s1.beat.hold_view = ViewNumber(2);  // late heartbeats
  c.Beat(s0, false), c.Beat(s1, false);
  EXPECT_EQ(c.state().view, ViewNumber(2));
}

TEST_F(Running, PendingViewIsMadeEvenIfItsWorkersDied) {
  FakeNode w2 = c.Worker(3);
  // Only the workers heartbeat: w2 is silent, the servers are heard but do not report.
  for (int i = 0; i < 52; ++i) {
    c.now_us += 100'000;
    c.Beat(s0, false), c.Beat(s1, false), c.Beat(w0), c.Beat(w1);
    c.scheduler->OnTick(c.now_us);
  }
  ASSERT_EQ(c.state().FindWorker(w2.incarnation), nullptr);
  EXPECT_EQ(c.state().pending_view, ViewNumber(2));
  c.Beat(s0), c.Beat(s1);
  EXPECT_EQ(c.state().view, ViewNumber(2));
  EXPECT_EQ(c.state().pending_view, ViewNumber(0));
}

TEST_F(Running, ViewsThatNobodyJoinedWithAreDropped) {
  FakeNode w2 = c.Worker(3);
  c.Beat(s0), c.Beat(s1);
  FakeNode again = c.Worker(4, 2);  // rank 2 restarted: joins with view 3
  c.Beat(s0), c.Beat(s1);
  ASSERT_EQ(c.state().view, ViewNumber(3));
  EXPECT_EQ(c.state().FindView(ViewNumber(2)), nullptr);
  EXPECT_NE(c.state().FindView(ViewNumber(1)), nullptr);
}

TEST_F(Running, BarrierOpensWhenEveryLiveWorkerInAViewHasArrived) {
  w0.beat.barrier_count = 1;
  c.Beat(w0);
  auto reply = c.Last<wire::HeartbeatReply>(w0.conn);
  EXPECT_EQ(reply->barrier_open, 0u);
  EXPECT_EQ(reply->awaiting, "barrier 1: rank 1 has not arrived");
  w1.beat.barrier_count = 1;
  c.Beat(w1);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w1.conn)->barrier_open, 1u);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->barrier_open, 1u) << "told without asking";
}

TEST_F(Running, JoinerCountsBarriersFromWhereTheOthersAre) {
  w0.beat.barrier_count = 5, w1.beat.barrier_count = 4;
  c.Beat(w0), c.Beat(w1);
  FakeNode w2 = c.Worker(3);
  EXPECT_EQ(c.Last<wire::Registered>(w2.conn)->barrier_base, 4u);
  c.Beat(s0), c.Beat(s1);
  c.Beat(w0);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->barrier_open, 4u);
}

TEST_F(Running, BarrierAcrossARestartLosesNobody) {
  w0.beat.barrier_count = 3, w1.beat.barrier_count = 2;
  c.Beat(w0), c.Beat(w1);
  c.Restart();
  c.Beat(w0);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->barrier_open, 0u)
      << "rank 1 has not been heard: counts as 0";
  // A joiner can't be told where to count from before everybody is heard.
  FakeNode early = c.Worker(3);
  EXPECT_EQ(c.Last<wire::Refusal>(early.conn)->code, Code::kUnavailable);
  w1.beat.barrier_count = 3;
  c.Beat(w1);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->barrier_open, 3u);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w1.conn)->barrier_open, 3u);
  FakeNode joiner = c.Worker(3);
  EXPECT_EQ(c.Last<wire::Registered>(joiner.conn)->barrier_base, 3u);
}

}  // namespace
}  // namespace cairn::scheduler

// What heartbeats say and what they are answered: counts that never go back, states that are sent again,
// nodes that nobody knows, rates (rules 2, 6 and 9).
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

struct Beating : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 2)};
  FakeNode s0, s1, w0, w1;
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
    for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  }
  void Arrive(FakeNode& worker, uint64_t barrier) {
    worker.beat.barrier_count = barrier;
    c.Beat(worker);
  }
  uint64_t Open(const FakeNode& worker) { return c.Last<wire::HeartbeatReply>(worker.conn)->barrier_open; }
  nlohmann::json ServerStatus(size_t i) {
    return nlohmann::json::parse(c.scheduler->StatusJson(c.now_us))["servers"][i];
  }
  size_t StatesTo(const FakeNode& node) {
    return static_cast<size_t>(
        std::count(c.network.told_states.begin(), c.network.told_states.end(), node.conn));
  }
};

TEST_F(Beating, ALateCopyTakesNoBarrierBack) {
  Arrive(w0, 2);
  Arrive(w0, 1);
  Arrive(w1, 2);
  EXPECT_EQ(Open(w1), 2u);
}

TEST_F(Beating, ALateCopyTakesNoConfirmationBack) {
  FakeNode late = s0;
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  c.Beat(s0);
  c.Beat(late, /*takes_state=*/false);
  c.Beat(s1);
  EXPECT_TRUE(c.Last<wire::TableReply>(w0.conn).has_value());
}

TEST_F(Beating, WhoWaitsForAViewHoldsUpNoBarrier) {
  Arrive(w0, 4), Arrive(w1, 4);
  FakeNode w2 = c.Worker(3);
  ASSERT_NE(c.state().pending_view, ViewNumber(0));
  Arrive(w0, 5), Arrive(w1, 5);
  EXPECT_EQ(Open(w0), 5u);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting.find("barrier"), std::string::npos);
}

TEST_F(Beating, ARestartedWorkerCountsBarriersFromWhereTheOthersAre) {
  Arrive(w0, 5), Arrive(w1, 3);
  FakeNode again = c.Worker(9, 1);
  EXPECT_EQ(c.Last<wire::Registered>(again.conn)->barrier_base, 5u) << "its predecessor's count is nobody's";
}

TEST_F(Beating, AfterARestartWhoIsInNoViewIsNotAwaitedForTheBarriers) {
  Arrive(w0, 5), Arrive(w1, 5);
  FakeNode w2 = c.Worker(3);
  c.Restart();
  for (FakeNode* node : {&w0, &w1}) {
    node->conn = c.NewConn();
    c.Beat(*node);
  }
  FakeNode w3 = c.Worker(4);
  ASSERT_TRUE(c.Last<wire::Registered>(w3.conn).has_value()) << "rank 2 has entered no barrier yet";
  EXPECT_EQ(c.Last<wire::Registered>(w3.conn)->barrier_base, 5u);
}

TEST_F(Beating, AReportThatNoServerMakesIsNotTaken) {
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  c.Beat(s0), c.Beat(s1);
  const TableId table = c.Last<wire::TableReply>(w0.conn)->table;
  FakeNode w2 = c.Worker(3);
  c.Beat(s1, true, {{table, Round(7)}});
  c.Beat(s0, true, {{table, Round(uint64_t{1} << 62)}});
  EXPECT_EQ(c.state().pending_view, ViewNumber(2));
  c.Beat(s0, true, {{table, Round(3)}});
  ASSERT_EQ(c.state().view, ViewNumber(2));
  EXPECT_EQ(c.state().FindView(ViewNumber(2))->starts, (std::vector<wire::TableRound>{{table, Round(7)}}));
}

TEST_F(Beating, TheLatestOpenRoundOfAllServersCountsWhoeverReportsIt) {
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  c.Beat(s0), c.Beat(s1);
  const TableId table = c.Last<wire::TableReply>(w0.conn)->table;
  FakeNode w2 = c.Worker(3);
  c.Beat(s0, true, {{table, Round(9)}}), c.Beat(s1, true, {{table, Round(7)}});
  ASSERT_NE(c.state().FindView(ViewNumber(2)), nullptr);
  EXPECT_EQ(c.state().FindView(ViewNumber(2))->starts, (std::vector<wire::TableRound>{{table, Round(9)}}));
}

TEST_F(Beating, RatesAreOfTheLastSecond) {
  const auto after_a_second = [&](wire::NodeStats stats) {
    c.now_us += 1'000'000;
    s0.beat.stats = stats;
    c.Beat(s0);
    return ServerStatus(0);
  };
  auto status = after_a_second({.pushes = 100, .pulls = 40, .bytes_in = 1000, .bytes_out = 500});
  EXPECT_EQ(status["pushes_per_s"], 100.0);
  EXPECT_EQ(status["pulls_per_s"], 40.0);
  EXPECT_EQ(status["bytes_per_s"], 1500.0);
  status = after_a_second({.pushes = 150, .pulls = 40, .bytes_in = 1000, .bytes_out = 600});
  EXPECT_EQ(status["pushes_per_s"], 50.0);
  EXPECT_EQ(status["pulls_per_s"], 0.0);
  EXPECT_EQ(status["bytes_per_s"], 100.0);
}

TEST_F(Beating, AStateIsSentAgainToAServerThatSaysNothing) {
  (void)c.Worker(3);
  const size_t before = StatesTo(s0);
  c.Advance(400'000);
  EXPECT_EQ(StatesTo(s0), before) << "it is on its way";
  c.Advance(300'000);
  EXPECT_EQ(StatesTo(s0), before + 1);
}

// Whatever was sent may be lost: a difference is one to what the node says that it has.
TEST_F(Beating, ADifferenceIsOneToWhatTheNodeHas) {
  const StateVersion has = w1.beat.version;
  (void)c.Worker(3);
  (void)c.Worker(4);
  ASSERT_GT(c.state().version.value, has.value + 1);
  c.now_us += 600'000;
  c.network.bases.clear();
  c.Beat(w1, /*takes_state=*/false);
  ASSERT_TRUE(c.network.bases.contains(w1.conn));
  EXPECT_EQ(c.network.bases[w1.conn], has);
}

TEST_F(Beating, ANodeThatIsAheadOfTheLogIsLoggedOnce) {
  w0.beat.version = StateVersion(c.state().version.value + 5);
  c.Beat(w0, /*takes_state=*/false);
  c.Beat(w0, /*takes_state=*/false);
  EXPECT_EQ(c.CountLogged("worker 0 holds version "), 1u);
  EXPECT_TRUE(c.Logged("the log has lost records, so this job can't be trusted"));
}

TEST_F(Beating, OneWhoseUidIsNotKnownIsRetiredIfItsIncarnationIs) {
  FakeNode again = c.Worker(9, 1);
  FakeNode stranger = w1;
  stranger.beat.uid = 77;
  stranger.conn = c.NewConn();
  c.Beat(stranger);
  EXPECT_EQ(c.Last<wire::Refusal>(stranger.conn)->code, Code::kRetired);
  stranger.beat.incarnation = again.incarnation;  // of somebody who lives
  stranger.conn = c.NewConn();
  c.Beat(stranger);
  EXPECT_EQ(c.Last<wire::Refusal>(stranger.conn)->code, Code::kUnavailable);
}

TEST(HeartbeatTime, IsToldInMilliseconds) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.options.heartbeat_us = 250'000;
  c.Start();
  FakeNode worker = c.Worker(1);
  EXPECT_EQ(c.Last<wire::Registered>(worker.conn)->heartbeat_ms, 250u);
  c.Beat(worker);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(worker.conn)->heartbeat_ms, 250u);
}

TEST_F(Beating, AConnectionSpeaksForOneNodeAtATime) {
  ASSERT_EQ(ServerStatus(0)["connected"], true);
  c.Tell(s0.conn, wire::Register{.role = wire::Role::kWorker, .uid = 50, .endpoint = {"10.0.2.1", 0}});
  ASSERT_TRUE(c.Last<wire::Registered>(s0.conn).has_value());
  EXPECT_EQ(ServerStatus(0)["connected"], false);
}

TEST_F(Beating, AConnectionThatSpeaksNonsenseIsNobodysAnyMore) {
  wire::InFrame frame;
  frame.storage = c.pool.Get(64);
  std::memset(frame.storage.data(), 0xEE, 64);
  frame.header.body_bytes = 64;
  c.scheduler->OnMessage(s1.conn, frame, c.now_us);
  EXPECT_EQ(ServerStatus(1)["connected"], false);
  EXPECT_EQ(ServerStatus(0)["connected"], true);
}

}  // namespace
}  // namespace cairn::scheduler

// Connections that are no node's: how many, and for how long.
#include "scheduler/core/callers.h"

#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

TEST(Callers, TheSilentGoAndBeyondTheBoundTheLongestSilent) {
  Callers callers(3, 100);
  for (uint64_t id = 1; id <= 4; ++id) callers.Heard(ConnId(id), static_cast<int64_t>(id));
  EXPECT_EQ(callers.TakeLate(10), std::vector<ConnId>{ConnId(1)});
  callers.Heard(ConnId(2), 50);  // it has spoken again
  callers.Forget(ConnId(4));     // it is a node's now
  EXPECT_EQ(callers.TakeLate(103), std::vector<ConnId>{ConnId(3)});
  EXPECT_EQ(callers.size(), 1u);
  EXPECT_EQ(callers.TakeLate(150), std::vector<ConnId>{ConnId(2)});
}

struct Strangers : ::testing::Test {
  FakeCluster c{FakeCluster::Options(1, 1)};
  bool Closed(ConnId conn) const {
    return std::count(c.network.closed.begin(), c.network.closed.end(), conn) > 0;
  }
};

TEST_F(Strangers, OneThatAsksAndStaysIsClosedAndNodesAreNot) {
  c.Start();
  FakeNode server = c.Server(9000), worker = c.Worker(1);
  const ConnId caller = c.NewConn();
  c.Tell(caller, wire::StatusRequest{1});
  EXPECT_TRUE(c.Last<wire::StatusReply>(caller));
  c.Advance(29'000'000, {&server, &worker});
  EXPECT_FALSE(Closed(caller));
  c.Advance(2'000'000, {&server, &worker});
  EXPECT_TRUE(Closed(caller));
  c.Advance(60'000'000, {&server, &worker});
  EXPECT_EQ(c.network.closed.size(), 1u);
}

TEST_F(Strangers, OneThatAsksAgainAndAgainMayStay) {
  c.Start();
  const ConnId caller = c.NewConn();
  for (int i = 0; i < 10; ++i) {
    c.Tell(caller, wire::StatusRequest{1});
    c.Advance(20'000'000);
  }
  EXPECT_FALSE(Closed(caller));
}

TEST_F(Strangers, ManyOfThemLockNobodyOut) {
  c.options.max_callers = 10;
  c.Start();
  std::vector<ConnId> callers;
  for (int i = 0; i < 110; ++i) {
    callers.push_back(c.NewConn());
    c.Tell(callers.back(), wire::StatusRequest{1});
    c.now_us += 1000;
  }
  EXPECT_EQ(c.network.closed, std::vector<ConnId>(callers.begin(), callers.begin() + 100));
  FakeNode server = c.Server(9000);
  EXPECT_NE(server.incarnation, Incarnation(0));
  EXPECT_FALSE(Closed(server.conn));
}

TEST_F(Strangers, ANodesOldConnectionGoes) {
  c.Start();
  FakeNode server = c.Server(9000);
  const ConnId old = server.conn;
  server.conn = c.NewConn();
  c.Beat(server);
  c.Advance(31'000'000, {&server});
  EXPECT_TRUE(Closed(old));
  EXPECT_FALSE(Closed(server.conn));
}

}  // namespace
}  // namespace cairn::scheduler

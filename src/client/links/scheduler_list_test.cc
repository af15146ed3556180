// Several schedulers, of which one leads: the worker finds it, at its start and after every change.
#include <gtest/gtest.h>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class SchedulerListTest : public ::testing::Test {
 protected:
  SchedulerListTest() : c(1, 1, 2) {
    c.options.schedulers = {{"10.9.0.1", 8118}, {"10.9.0.2", 8118}, {"10.9.0.3", 8118}};
  }
  void Start(int64_t timeout_us = 30'000'000) {
    c.Make();
    c.core->Start(c.now + timeout_us, [this](Status s) { c.started = s; }, c.now);
    c.Run();
  }
  std::string TalksTo() const {
    const ConnId conn = c.SchedulerConn();
    return conn.value == 0 ? "" : c.network.conns.at(conn).to.host;
  }
  // The leader's process ends, another one takes over.
  void LeaderDies(size_t next) {
    const ConnId conn = c.SchedulerConn();
    c.leader = next;
    c.state.term = c.state.term.Next();
    c.state.version = c.state.version.Next();
    c.network.conns.at(conn).open = false;
    c.core->OnDisconnect(conn, c.now);
  }

  FakeCluster c;
};

TEST_F(SchedulerListTest, TheLeaderIsFoundAmongStandbys) {
  c.leader = 2;
  Start();
  EXPECT_FALSE(c.started);
  c.Wait(1'000'000, 10'000);
  ASSERT_TRUE(c.started && c.started->ok());
  EXPECT_EQ(TalksTo(), "10.9.0.3");
}

TEST_F(SchedulerListTest, ANewLeaderIsFoundWhenTheConnectionIsLost) {
  Start();
  ASSERT_TRUE(c.started && c.started->ok());
  EXPECT_EQ(TalksTo(), "10.9.0.1");
  LeaderDies(2);
  c.Wait(1'000'000, 10'000);
  EXPECT_EQ(TalksTo(), "10.9.0.3");
  EXPECT_EQ(c.core->state()->version, c.state.version);
  // Who is found is kept.
  const size_t connections = c.network.conns.size();
  c.Wait(10'000'000);
  EXPECT_EQ(c.network.conns.size(), connections);
  bool entered = false;
  c.core->Barrier(c.now + 1'000'000, [&](Status s) { entered = s.ok(); }, c.now);
  c.barrier_open = 1;
  c.Wait(1'100'000);
  EXPECT_TRUE(entered);
}

// A leader that has been replaced and stands by says so; one that hangs says nothing.
TEST_F(SchedulerListTest, AStandbyAndASilentOneAreLeft) {
  Start();
  c.leader = 1;
  c.Wait(2'000'000);
  EXPECT_EQ(TalksTo(), "10.9.0.2");
  c.standbys_answer = false;
  c.leader = 0;
  c.Wait(12'000'000);
  EXPECT_EQ(TalksTo(), "10.9.0.1");
}

TEST_F(SchedulerListTest, WhoIsMissingNamesAllOfThem) {
  c.options.schedulers = {{"10.9.0.1", 8118}, {"10.9.0.9", 8118}};
  c.scheduler_answers = false;
  Start(4'000'000);
  c.Wait(4'100'000);
  ASSERT_TRUE(c.started);
  EXPECT_EQ(c.started->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(c.started->message(),
            "the client could not start in time: no answer from the scheduler at 10.9.0.1:8118 or "
            "10.9.0.9:8118 yet: this scheduler stands by");
}

// With one address a refusal is no reason to make the connection anew.
TEST_F(SchedulerListTest, ASingleSchedulerIsAskedAgainOnTheSameConnection) {
  c.options.schedulers.clear();
  c.scheduler_answers = false;
  Start();
  const ConnId conn = c.SchedulerConn();
  c.Say(conn, wire::Refusal{0, Code::kUnavailable, "not yet"});
  c.scheduler_answers = true;
  c.Wait(1'100'000);
  EXPECT_EQ(c.SchedulerConn(), conn);
  EXPECT_TRUE(c.started && c.started->ok());
}

}  // namespace
}  // namespace cairn::client

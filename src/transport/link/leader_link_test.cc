// One connection to the scheduler that leads: another one is tried while it is silent, and taken where it
// leads.
#include "transport/link/leader_link.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cairn {
namespace {

constexpr int64_t kHeartbeatUs = 1'000'000;

class NotingNetwork final : public Network {
 public:
  ConnId Connect(const wire::Endpoint& to) override {
    asked.push_back(to);
    return ConnId{asked.size()};
  }
  void Send(ConnId conn, wire::FramePtr) override { sent.push_back(conn); }
  void Close(ConnId conn) override { closed.insert(conn); }

  std::vector<wire::Endpoint> asked;
  std::vector<ConnId> sent;
  std::set<ConnId> closed;
};

class LeaderLinkTest : public testing::Test {
 protected:
  LeaderLink Make(size_t schedulers) {
    std::vector<wire::Endpoint> places;
    for (size_t i = 0; i < schedulers; ++i) places.push_back({"10.0.0." + std::to_string(i), 9000});
    return LeaderLink({.places = places, .heartbeat_us = kHeartbeatUs}, network, pool);
  }
  NotingNetwork network;
  BufferPool pool;
};

TEST_F(LeaderLinkTest, ItSendsOnItsConnectionAndNothingWithoutOne) {
  LeaderLink link = Make(1);
  link.Send(wire::StatusRequest{});
  link.Start(0);
  link.Send(wire::StatusRequest{});
  EXPECT_TRUE(network.sent.empty());
  EXPECT_TRUE(link.Owns(ConnId{1}) && !link.Is(ConnId{1}));
  EXPECT_TRUE(link.OnConnected(ConnId{1}, 0));
  EXPECT_TRUE(link.connected() && link.Is(ConnId{1}));
  link.Send(wire::StatusRequest{});
  EXPECT_EQ(network.sent, std::vector<ConnId>{ConnId{1}});
  EXPECT_EQ(link.connection_number(), 1u);
}

TEST_F(LeaderLinkTest, WhileItIsSilentAnotherIsTriedAndTakesItsPlace) {
  LeaderLink link = Make(2);
  link.Start(0);
  link.OnConnected(ConnId{1}, 0);
  link.OnTick(2 * kHeartbeatUs - 1);
  EXPECT_EQ(network.asked.size(), 1u);
  link.OnTick(2 * kHeartbeatUs);
  ASSERT_EQ(network.asked.size(), 2u);
  EXPECT_NE(network.asked[1], network.asked[0]);
  EXPECT_TRUE(link.Is(ConnId{1})) << "nothing is given up yet";
  EXPECT_TRUE(link.OnConnected(ConnId{2}, 2 * kHeartbeatUs));
  EXPECT_TRUE(link.Is(ConnId{2}));
  EXPECT_TRUE(network.closed.contains(ConnId{1}));
  EXPECT_EQ(link.connection_number(), 2u);
}

TEST_F(LeaderLinkTest, OneThatWasOnlySlowIsKept) {
  LeaderLink link = Make(1);
  link.Start(0);
  link.OnConnected(ConnId{1}, 0);
  link.OnTick(2 * kHeartbeatUs);
  link.OnHeard(2 * kHeartbeatUs);
  EXPECT_TRUE(network.closed.contains(ConnId{2}));
  EXPECT_TRUE(link.Is(ConnId{1}));
  EXPECT_FALSE(link.OnConnected(ConnId{2}, 2 * kHeartbeatUs)) << "it was given up";
}

TEST_F(LeaderLinkTest, OneThatDoesNotLeadIsLeftOnlyForAnother) {
  LeaderLink alone = Make(1);
  alone.Start(0);
  alone.OnConnected(ConnId{1}, 0);
  alone.LeaveForAnother(0);
  EXPECT_TRUE(alone.connected());
  network = {};
  LeaderLink several = Make(3);
  several.Start(0);
  several.OnConnected(ConnId{1}, 0);
  several.LeaveForAnother(0);
  EXPECT_FALSE(several.connected());
  EXPECT_TRUE(network.closed.contains(ConnId{1}));
}

TEST_F(LeaderLinkTest, ALostConnectionIsToldOnceAndOthersAreNot) {
  LeaderLink link = Make(1);
  link.Start(0);
  link.OnConnected(ConnId{1}, 0);
  link.OnTick(2 * kHeartbeatUs);
  EXPECT_FALSE(link.OnDisconnect(ConnId{2}, 2 * kHeartbeatUs)) << "an attempt";
  EXPECT_TRUE(link.OnDisconnect(ConnId{1}, 2 * kHeartbeatUs));
  link.DialAgain(2 * kHeartbeatUs);
  EXPECT_FALSE(link.OnDisconnect(ConnId{1}, 2 * kHeartbeatUs));
}

}  // namespace
}  // namespace cairn

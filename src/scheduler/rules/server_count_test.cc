// How many servers a job should have, and which of them go.
#include "scheduler/rules/server_count.h"

#include <gtest/gtest.h>

#include "scheduler/rules/membership.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {
namespace {

DurableState RunningWith(uint32_t servers) {
  DurableState d;
  d.slot_count = 16;
  d.initial_servers = servers;
  d.state.expected_workers = 1;
  d.state.version = StateVersion(1);
  ExpectServers(d, servers, 0);
  for (uint32_t i = 0; i < servers; ++i)
    AddNode(d,
            {.role = wire::Role::kServer,
             .uid = i + 1,
             .endpoint = {"h", static_cast<uint16_t>(i + 1)},
             .threads = 1},
            i, 0);
  AddNode(d, {.role = wire::Role::kWorker, .uid = 100, .endpoint = {"w", 0}}, 0, 0);
  Form(d);
  return d;
}
const ServerWishes kNobody{.wants_to_leave = [](const wire::ServerInfo&) { return false; }};

TEST(ServerCount, TwoOwnersAreChosenAsSoonAsThereAreTwoServers) {
  DurableState d;
  ExpectServers(d, 1, 0);
  EXPECT_EQ(d.state.replicas, 1u);
  ExpectServers(d, 5, 0);
  EXPECT_EQ(d.state.replicas, 2u);
  ExpectServers(d, 1, 3);
  EXPECT_EQ(d.state.replicas, 3u) << "as the user asked for";
}

TEST(ServerCount, ThoseWithTheHighestIndexesGoAndComeBack) {
  DurableState d = RunningWith(4);
  EXPECT_EQ(AskServersToGo(d, 2), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(StayingServers(d.state), 2u);
  EXPECT_TRUE(AskServersToGo(d, 2).empty());
  EXPECT_EQ(KeepServers(d, 3, kNobody), std::vector<uint32_t>{2});
  EXPECT_EQ(KeepServers(d, 9, kNobody), std::vector<uint32_t>{3});
  EXPECT_EQ(StayingServers(d.state), 4u);
}

TEST(ServerCount, OneThatWantsToLeaveIsNotKept) {
  DurableState d = RunningWith(3);
  AskServersToGo(d, 1);
  const ServerWishes wishes{
      .wants_to_leave = [](const wire::ServerInfo& server) { return server.index == 1; }};
  EXPECT_EQ(KeepServers(d, 3, wishes), std::vector<uint32_t>{2});
}

TEST(ServerCount, OneThatIsHeardIsKeptFirst) {
  DurableState d = RunningWith(3);
  AskServersToGo(d, 1);
  const ServerWishes wishes{.wants_to_leave = [](const wire::ServerInfo&) { return false; },
                            .heard_lately = [](const wire::ServerInfo& server) { return server.index != 1; }};
  EXPECT_EQ(KeepServers(d, 2, wishes), std::vector<uint32_t>{2});
  EXPECT_EQ(KeepServers(d, 3, wishes), std::vector<uint32_t>{1});
}

TEST(ServerCount, OneCouldStayWhereTooFewDoAndOneWantsToGo) {
  DurableState d = RunningWith(3);
  uint32_t wants = 9;
  const ServerWishes wishes{
      .wants_to_leave = [&](const wire::ServerInfo& server) { return server.index == wants; }};
  AskServersToGo(d, 1);
  d.state.servers.erase(d.state.servers.begin());  // the one that stayed has died
  EXPECT_FALSE(OneCouldStay(d.state, wishes)) << "nobody wants to go";
  wants = 1;
  EXPECT_TRUE(OneCouldStay(d.state, wishes));
  EXPECT_EQ(KeepServers(d, LeastToStay(d.state), wishes), std::vector<uint32_t>{2});
  EXPECT_FALSE(OneCouldStay(d.state, wishes));
  d.state.min_in_sync = 2;
  EXPECT_FALSE(OneCouldStay(d.state, wishes)) << "there is no other one";
}

TEST(ServerCount, AJobHasAsManyServersAsItCanUse) {
  DurableState d = RunningWith(2);
  d.state.min_in_sync = 2;
  EXPECT_TRUE(CheckServerCount(d, 16).ok());
  EXPECT_EQ(CheckServerCount(d, 17).code(), Code::kInvalidArgument) << "one for each partition";
  EXPECT_EQ(CheckServerCount(d, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(CheckServerCount(d, 1).code(), Code::kInvalidArgument) << "two are to be in sync";
  d.state.phase = wire::Phase::kForming;
  EXPECT_EQ(CheckServerCount(d, 2).code(), Code::kUnavailable);
  d.state.phase = wire::Phase::kFailed;
  EXPECT_EQ(CheckServerCount(d, 2).code(), Code::kJobFailed);
}

}  // namespace
}  // namespace cairn::scheduler

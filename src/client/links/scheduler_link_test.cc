// The worker's connection to the scheduler: what is said on it, and whose word counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

template <class Message>
long HeardOf(const FakeCluster& c) {
  return std::count_if(c.heard.begin(), c.heard.end(),
                       [](const auto& m) { return std::holds_alternative<Message>(m); });
}

void Begin(FakeCluster& c) {
  c.Make();
  c.core->Start(c.now + 60'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Run();
}

size_t OpenTo(const FakeCluster& c, const wire::Endpoint& to) {
  return static_cast<size_t>(
      std::count_if(c.network.conns.begin(), c.network.conns.end(),
                    [&](const auto& item) { return item.second.open && item.second.to == to; }));
}

TEST(SchedulerLink, ARegistrationSaysWhoAndWhere) {
  FakeCluster c;
  c.options.host = "10.1.2.3";
  c.options.wanted_rank = 5;
  c.options.cluster_id = "c";
  Begin(c);
  const auto& first = std::get<wire::Register>(c.heard.at(0));
  EXPECT_EQ(first.role, wire::Role::kWorker);
  EXPECT_EQ(first.endpoint, (wire::Endpoint{"10.1.2.3", 0}));
  EXPECT_EQ(first.wanted_rank, 5);
  EXPECT_EQ(first.cluster_id, "c");
  EXPECT_EQ(first.uid, c.options.uid);
  EXPECT_TRUE(c.started && c.started->ok());
}

TEST(SchedulerLink, AnAnswerToSomebodyElseIsIgnored) {
  FakeCluster c;
  c.scheduler_answers = false;
  Begin(c);
  c.Say(c.SchedulerConn(), wire::Registered{c.options.uid + 1, "c", Term{1}, Incarnation{7}, 0, 0});
  EXPECT_EQ(c.core->incarnation(), Incarnation{0});
}

TEST(SchedulerLink, AnotherClusterIsNamed) {
  FakeCluster c;
  c.options.cluster_id = "mine";
  Begin(c);  // the scheduler is that of "c", and does not look
  ASSERT_TRUE(c.started);
  EXPECT_EQ(c.started->message(), "the scheduler at 127.0.0.1:8118 belongs to cluster \"c\", not \"mine\"");
}

TEST(SchedulerLink, AnUnknownHostIsNamedInTheErrorToo) {
  FakeCluster c;
  std::string unknown = "unknown host nosuch.invalid";
  c.options.unknown_host = [&] { return unknown; };
  c.scheduler_answers = false;
  c.Make();
  c.core->Start(c.now + 30'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Wait(40'000'000);
  ASSERT_TRUE(c.started);
  EXPECT_EQ(c.started->message(),
            "the client could not start in time: no answer from the scheduler at 127.0.0.1:8118 yet: "
            "unknown host nosuch.invalid");
}

TEST(SchedulerLink, TheAnswerToARegistrationSaysHowOftenToSpeak) {
  FakeCluster c;
  c.scheduler_answers = false;
  Begin(c);
  c.Say(c.SchedulerConn(), wire::Registered{c.options.uid, "c", Term{1}, Incarnation{7}, 0, 0, 200});
  c.Run();
  c.heard.clear();
  c.Wait(1'000'000, 50'000);
  EXPECT_GE(HeardOf<wire::Heartbeat>(c), 4);
}

TEST(SchedulerLink, ASilentConnectionIsClosedWhenAnotherOneIsThere) {
  FakeCluster c;
  c.StartAll();
  const ConnId silent = c.SchedulerConn();
  c.scheduler_answers = false;
  c.Wait(8'000'000);
  EXPECT_FALSE(c.network.conns.at(silent).open);
  EXPECT_EQ(OpenTo(c, c.options.scheduler), 1u);
}

TEST(SchedulerLink, ALostConnectionIsMadeAgainAtOnceAndCallsAreRepeatedOnIt) {
  FakeCluster c;
  c.StartAll();
  c.tables_answered = false;
  c.Wait(1'050'000);
  c.core->CreateTable({.name = "x", .size = 4}, c.now + 60'000'000, [](auto) {}, c.now);
  c.Run();
  EXPECT_EQ(HeardOf<wire::CreateTable>(c), 1);
  const ConnId conn = c.SchedulerConn();
  c.network.conns.at(conn).open = false;
  c.core->OnDisconnect(conn, c.now);
  c.Wait(200'000, 10'000);
  EXPECT_EQ(OpenTo(c, c.options.scheduler), 1u);
  EXPECT_EQ(HeardOf<wire::CreateTable>(c), 2);
}

TEST(SchedulerLink, StatesThatCanNotBeUsedAreIgnored) {
  FakeCluster c;
  c.StartAll();
  const auto taken = [&](auto change) {
    wire::ClusterState state = c.state;
    state.version = state.version.Next();
    change(state);
    c.Say(c.SchedulerConn(), wire::StateMessage{state});
    return c.core->state()->version == state.version;
  };
  EXPECT_FALSE(taken([](auto& s) { s.servers[1].threads = 5000; }));
  EXPECT_FALSE(taken([](auto& s) { s.servers.push_back({wire::kNoServer, Incarnation{9}, {"h", 1}, 1}); }));
  EXPECT_FALSE(taken([](auto& s) { s.slots.resize(s.slots.size() / 2); }))
      << "a job keeps its number of slots";
  EXPECT_TRUE(taken([](auto&) {}));
}

TEST(SchedulerLink, ANewStateIsConfirmedAtOnce) {
  FakeCluster c;
  c.StartAll();
  c.heard.clear();
  c.NewState();
  ASSERT_FALSE(c.heard.empty());
  EXPECT_EQ(std::get<wire::Heartbeat>(c.heard.back()).version, c.state.version);
}

TEST(SchedulerLink, ASchedulerThatWasReplacedHasNothingToSay) {
  FakeCluster c;
  c.StartAll();
  c.state.term = Term{3};
  c.NewState();
  std::optional<Status> barrier;
  c.core->Barrier(c.now + 60'000'000, [&](Status s) { barrier = s; }, c.now);
  const ConnId conn = c.SchedulerConn();
  c.Say(conn, wire::HeartbeatReply{Term{2}, c.state.version, 1, "", 0});
  c.core->OnTick(c.now);
  EXPECT_FALSE(barrier);
  EXPECT_TRUE(c.network.conns.at(conn).open) << "there is no other one";
}

class SeveralSchedulers : public ::testing::Test {
 protected:
  SeveralSchedulers() : c(1, 1, 2) {
    c.options.schedulers = {{"10.9.0.1", 8118}, {"10.9.0.2", 8118}};
    Begin(c);
    c.state.term = Term{3};
    c.NewState();
  }
  FakeCluster c;
};

TEST_F(SeveralSchedulers, OneThatWasReplacedIsLeft) {
  const ConnId conn = c.SchedulerConn();
  c.Say(conn, wire::HeartbeatReply{Term{2}, c.state.version, 0, "", 0});
  EXPECT_FALSE(c.network.conns.at(conn).open);
}

TEST_F(SeveralSchedulers, OneOfAnotherClusterIsLeft) {
  const ConnId conn = c.SchedulerConn();
  c.Say(conn, wire::Refusal{0, Code::kProtocol, "this is cluster x, not c"});
  EXPECT_TRUE(c.core->fatal().ok()) << "the others may still be ours";
  EXPECT_FALSE(c.network.conns.at(conn).open);
}

TEST_F(SeveralSchedulers, OneThatCanNotGrantACallYetLeadsAllTheSame) {
  const ConnId conn = c.SchedulerConn();
  c.tables_answered = false;
  std::optional<Status> made;
  c.core->CreateTable(
      {.name = "x", .size = 4}, c.now + 60'000'000, [&](auto r) { made = r.status(); }, c.now);
  c.Run();
  c.Say(conn, wire::Refusal{1, Code::kUnavailable, "a server is away"});
  EXPECT_TRUE(c.network.conns.at(conn).open);
  c.Say(conn, wire::TableReply{1, Code::kUnavailable, "a server is away", {}, {}});
  EXPECT_FALSE(made) << "it is asked for again";
  c.tables_answered = true;
  c.Wait(1'100'000);
  EXPECT_TRUE(made && made->ok());
}

}  // namespace
}  // namespace cairn::client

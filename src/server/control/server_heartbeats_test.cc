// What a server tells the scheduler of all its threads, when it does, and how it registers, leaves and ends.
#include <algorithm>

#include "server/control/server_control_harness.h"
#include "wire/state_delta.h"

namespace cairn::server {
namespace {

class Heartbeats : public Control {
 protected:
  wire::Heartbeat Last() { return Sent<wire::Heartbeat>().back(); }
  size_t Said() { return Sent<wire::Heartbeat>().size(); }
};

TEST_F(Heartbeats, StatsOfAllThreadsAreAddedButWhatEveryThreadSees) {
  Register();
  ShardReport one, two;
  one.stats = {.pushes = 1,
               .pulls = 2,
               .rounds = 3,
               .bytes_in = 4,
               .bytes_out = 5,
               .rows = 6,
               .memory_bytes = 7,
               .connections = 8,
               .round_trips = 9,
               .replicated_bytes = 10,
               .unconfirmed_bytes = 11,
               .dense_bytes = 12};
  two.stats = {.pushes = 100,
               .pulls = 200,
               .rounds = 2,
               .bytes_in = 400,
               .bytes_out = 500,
               .rows = 600,
               .memory_bytes = 700,
               .connections = 800,
               .round_trips = 8,
               .replicated_bytes = 1000,
               .unconfirmed_bytes = 1100,
               .dense_bytes = 1200};
  one.version = two.version = StateVersion{4};
  control->OnReports({one, two}, now);
  const wire::NodeStats said = Last().stats;
  EXPECT_EQ(said.pushes, 101u);
  EXPECT_EQ(said.pulls, 202u);
  EXPECT_EQ(said.bytes_in, 404u);
  EXPECT_EQ(said.bytes_out, 505u);
  EXPECT_EQ(said.rows, 606u);
  EXPECT_EQ(said.memory_bytes, 707u);
  EXPECT_EQ(said.connections, 808u);
  EXPECT_EQ(said.replicated_bytes, 1010u);
  EXPECT_EQ(said.unconfirmed_bytes, 1111u);
  EXPECT_EQ(said.dense_bytes, 1212u);
  EXPECT_EQ(said.rounds, 3u) << "the same rounds, seen by both";
  EXPECT_EQ(said.round_trips, 9u);
}

TEST_F(Heartbeats, MemoryThatThreadsHoldAndNoTableHasCountsAsLeft) {
  options.memory_left = [] { return MemoryLeft{MemoryKind::kMachine, 1000, 7}; };
  Start();
  Register();
  ShardReport one{.version = StateVersion{4}}, two{.version = StateVersion{4}};
  one.reusable_bytes = 20;
  two.reusable_bytes = 3;
  control->OnReports({one, two}, now);
  EXPECT_EQ(Last().stats.memory.bytes, 1023u);
  EXPECT_EQ(Last().stats.memory.kind, MemoryKind::kMachine);
}

TEST_F(Heartbeats, HotRowsAndStalledRoundsOfAllThreadsAreThere) {
  Register();
  const TableId a{1}, b{2};
  ShardReport one{.version = StateVersion{4}}, two{.version = StateVersion{4}};
  one.hot = {.rows = {{a, 7, 30}}, .sampled = {{a, 100}, {b, 40}}};
  two.hot = {.rows = {{a, 8, 50}}, .sampled = {{a, 20}}};
  one.stalled = {{a, Round{3}, 2500, 1, {1}}};
  two.stalled = {{b, Round{1}, 3000, 1, {0}}};
  control->OnReports({one, two}, now);
  const wire::Heartbeat said = Last();
  EXPECT_EQ(said.hot_rows, (std::vector<wire::HotRow>{{a, 8, 50}, {a, 7, 30}}));
  EXPECT_EQ(said.sampled, (std::vector<wire::SampledTable>{{a, 120}, {b, 40}}));
  ASSERT_EQ(said.stalled.size(), 2u);
  EXPECT_EQ(std::count(said.stalled.begin(), said.stalled.end(), one.stalled[0]), 1);
  EXPECT_EQ(std::count(said.stalled.begin(), said.stalled.end(), two.stalled[0]), 1);
}

TEST_F(Heartbeats, HotRowsOfManyThreadsAreBounded) {
  Register();
  std::vector<ShardReport> reports(8);
  uint64_t count = 9000;
  for (ShardReport& report : reports) {
    report.version = StateVersion{4};
    for (uint32_t table = 1; table <= 10; ++table)
      for (uint64_t row = 0; row < kHotRowsOfATable; ++row)
        report.hot.rows.push_back({TableId{table}, --count, count});
    for (uint32_t table = 1; table <= 20; ++table)
      report.hot.sampled.push_back(
          {TableId{table + 20 * static_cast<uint32_t>(&report - reports.data())}, table});
  }
  // One table alone has more rows than all that go along.
  for (uint64_t row = 0; row < 40; ++row) reports[0].hot.rows.push_back({TableId{99}, row, 10'000 + row});
  control->OnReports(reports, now);
  const wire::Heartbeat said = Last();
  EXPECT_EQ(said.hot_rows.size(), wire::kMaxHotRows);
  EXPECT_EQ(said.hot_rows.front(), (wire::HotRow{TableId{99}, 39, 10'039})) << "the hottest first";
  EXPECT_EQ(std::count_if(said.hot_rows.begin(), said.hot_rows.end(),
                          [](const wire::HotRow& row) { return row.table == TableId{99}; }),
            static_cast<long>(kHotRowsOfATable));
  ASSERT_EQ(said.sampled.size(), wire::kMaxSampledTables);
  EXPECT_EQ(said.sampled.front().count, 20u) << "those that are asked for most";
}

TEST_F(Heartbeats, NewsAndHeldRoundsGoOutAtOnce) {
  Register();
  ShardReport one{.version = StateVersion{4}, .hold_view = ViewNumber{2}};
  one.hold_rounds = {{TableId{1}, Round{3}}};
  control->OnReports({one}, now);
  const size_t before = Said();
  EXPECT_EQ(Last().hold_version, StateVersion{4}) << "under which state that was so";
  one.hold_rounds = {{TableId{1}, Round{4}}};
  control->OnReports({one}, now);
  EXPECT_EQ(Said(), before + 1);
  EXPECT_EQ(Last().open_rounds, one.hold_rounds);
  one.news = {{0, wire::SlotNews::kCaughtUp, 1, 1, StateVersion{3}}};
  control->OnReports({one}, now);
  EXPECT_EQ(Said(), before + 2);
  EXPECT_EQ(Last().news, one.news);
  one.stats.pushes = 99;
  control->OnReports({one}, now);
  EXPECT_EQ(Said(), before + 2) << "that can wait";
}

TEST_F(Heartbeats, ADifferenceOfStatesIsTakenIfItFitsAndIsOfTheLeader) {
  Register();
  wire::ClusterState four = State(4), five = State(5), six = State(6);
  four.term = five.term = six.term = Term{2};
  five.servers[0].leaving = true;
  Tell(wire::Difference(four, five));
  EXPECT_TRUE(states.empty()) << "there is nothing that it could be applied to";
  Tell(wire::StateMessage{four});
  Tell(wire::Difference(four, five));
  EXPECT_EQ(states, (std::vector{StateVersion{4}, StateVersion{5}}));
  Tell(wire::Difference(four, six));
  EXPECT_EQ(states.size(), 2u) << "of a version that it no longer has";
  wire::ClusterState old = six;
  old.term = Term{1};
  Tell(wire::Difference(five, old));
  EXPECT_EQ(states.size(), 2u) << "of a scheduler that has been replaced";
  Tell(wire::Difference(five, six));
  EXPECT_EQ(states.back(), StateVersion{6});
}

TEST_F(Heartbeats, WhoWantsToLeaveSaysSoAtOnceAndGoesWhenItIsLetGo) {
  Register();
  const size_t before = Said();
  EXPECT_FALSE(Last().leaving);
  control->Drain(now);
  EXPECT_EQ(Said(), before + 1);
  EXPECT_TRUE(Last().leaving);
  EXPECT_EQ(lines.back(), "leaving: its partitions move to other servers first");
  const size_t said = lines.size();
  control->Drain(now);  // asked twice
  EXPECT_EQ(Said(), before + 1);
  EXPECT_EQ(lines.size(), said);
  Tick(1'000'000);
  EXPECT_TRUE(Last().leaving) << "in every heartbeat";
  Tell(wire::LeaveReply{Incarnation{4}});
  EXPECT_FALSE(control->finished()) << "meant for another";
  Tell(wire::LeaveReply{Incarnation{5}});
  EXPECT_TRUE(control->finished());
  EXPECT_TRUE(control->result().ok());
}

TEST_F(Heartbeats, BeforeItIsRegisteredItJustLeaves) {
  control->OnConnected(conn(), now);
  control->Drain(now);
  EXPECT_TRUE(control->finished());
  EXPECT_TRUE(control->result().ok());
}

TEST_F(Heartbeats, WhoEndsHangsUpGivesUpItsAttemptsAndSaysWhy) {
  Register();
  for (int i = 0; i < 3; ++i) Tick(1'000'000);  // silent: others are tried beside it
  ASSERT_EQ(net.connects, 3u);
  Buffer bytes = wire::Flatten(
      *wire::EncodeControl(wire::Refusal{0, Code::kRetired, "server 3 was declared lost"}, pool), pool);
  Result<wire::InFrame> frame = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool);
  control->OnMessage(ConnId{1001}, *frame, now);
  ASSERT_TRUE(control->finished());
  std::sort(net.closed.begin(), net.closed.end());
  EXPECT_EQ(net.closed, (std::vector<ConnId>{ConnId{1001}, ConnId{1002}, ConnId{1003}}));
  EXPECT_EQ(lines.back(), "server 3 was declared lost");
  Tick(1'000'000);
  EXPECT_EQ(net.connects, 3u);
}

TEST_F(Heartbeats, AnAttemptThatIsUnderWayIsGivenUpAtTheEnd) {
  options.register_deadline_us = 3'000'000;
  Start();
  const ConnId attempt = conn();
  Tick(3'000'000);
  ASSERT_TRUE(control->finished());
  EXPECT_EQ(net.closed, std::vector<ConnId>{attempt});
}

TEST_F(Heartbeats, WhoWaitsForItsSchedulerSaysSoNowAndThen) {
  for (int i = 0; i < 19; ++i) Tick(100'000);
  EXPECT_TRUE(lines.empty()) << "two seconds are nothing";
  for (int i = 0; i < 100; ++i) Tick(100'000);
  EXPECT_EQ(lines, std::vector<std::string>{"no answer from the scheduler at sched:7000 yet"});
  for (int i = 0; i < 100; ++i) Tick(100'000);
  EXPECT_EQ(lines.size(), 2u);
  control->OnDisconnect(conn(), now);
  EXPECT_EQ(lines.size(), 2u) << "there is nothing to lose yet";
}

TEST_F(Heartbeats, ARegistrationSaysWhoItIsAndWhatItWants) {
  options.cluster_id = "mine";
  options.wanted_rank = 2;
  Start();
  control->OnConnected(conn(), now);
  const wire::Register said = Sent<wire::Register>().back();
  EXPECT_EQ(said.cluster_id, "mine");
  EXPECT_EQ(said.wanted_rank, 2);
  EXPECT_EQ(said.endpoint, options.endpoint);
  EXPECT_EQ(said.role, wire::Role::kServer);
  control->OnDisconnect(conn(), now);
  EXPECT_TRUE(lines.empty()) << "not registered: nothing is lost";
}

TEST_F(Heartbeats, TheSchedulerMayChangeItsMindOnHowOftenItWantsToHear) {
  control->OnConnected(conn(), now);
  Tell(wire::Registered{77, "test", Term{1}, Incarnation{5}, 3, 0, /*heartbeat_ms=*/500});
  Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}, 0, "", 0, 200});
  const auto in_a_second = [&] {
    const size_t before = Said();
    for (int i = 0; i < 10; ++i) {
      Tick(100'000);
      Tell(wire::HeartbeatReply{Term{1}, StateVersion{1}, 0, "", 0, 0});
    }
    return Said() - before;
  };
  EXPECT_EQ(in_a_second(), 5u) << "one that says nothing of it changes nothing";
  // And as often it is looked for when it is silent.
  const uint64_t before = net.connects;
  for (int i = 0; i < 14; ++i) Tick(100'000);
  EXPECT_EQ(net.connects, before + 6) << "from 400 ms on, every 200 ms";
}

TEST_F(Heartbeats, AfterBytesThatAreNoMessageItConnectsAgainSoon) {
  Register();
  wire::InFrame junk;
  junk.header.type = wire::FrameType::kControl;
  junk.header.body_bytes = 16;
  junk.storage = pool.Get(16);
  std::memset(junk.storage.data(), 0xFF, 16);
  control->OnMessage(conn(), junk, now);
  Tick(50'000);
  EXPECT_EQ(net.connects, 2u);
}

TEST_F(Heartbeats, OnceItIsHeardTheNextLossIsMadeGoodSoonAgain) {
  for (int i = 0; i < 6; ++i) {  // refused ever later
    control->OnDisconnect(conn(), now);
    Tick(2'000'000);
  }
  Register();
  control->OnDisconnect(conn(), now);
  Tick(50'000);
  const uint64_t before = net.connects;
  control->OnDisconnect(conn(), now);
  Tick(75'000);
  EXPECT_EQ(net.connects, before + 1) << "the pause is the shortest, with its half by chance";
}

}  // namespace
}  // namespace cairn::server

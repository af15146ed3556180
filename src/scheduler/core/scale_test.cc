// Servers that join, leave, and are asked for or sent away by `cairn scale`; and a scheduler that is
// killed at any record of it (rules 2, 45, 46).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

using Json = nlohmann::json;

struct Scaling : ::testing::Test {
  FakeCluster c{Options()};
  std::vector<std::unique_ptr<FakeNode>> servers;
  FakeNode w0;
  ConnId tool;
  static SchedulerOptions Options() {
    SchedulerOptions o = FakeCluster::Options(2, 1);
    o.slot_count = 128;
    o.replicas = 0;
    return o;
  }
  void SetUp() override {
    c.Start();
    Join(), Join();
    w0 = c.Worker(1);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    std::mt19937_64 random(5);
    for (int i = 0; i < 128; ++i) c.bytes.push_back(10'000 + random() % 100'000);
    tool = c.NewConn();
    Go(1'000'000);
  }
  void Join() {
    servers.push_back(std::make_unique<FakeNode>(c.Server(static_cast<uint16_t>(9000 + servers.size()))));
  }
  std::vector<FakeNode*> There() {
    std::vector<FakeNode*> there;
    for (auto& server : servers)
      if (const wire::ServerInfo* info = c.state().FindServer(server->rank);
          info != nullptr && info->incarnation == server->incarnation)
        there.push_back(server.get());
    return there;
  }
  void Go(int64_t us) {
    for (; us > 0; us -= 100'000) c.AdvanceDone(100'000, There(), {&w0});
  }
  Json Scale(uint32_t n) {
    c.Tell(tool, wire::Scale{7, n});
    auto reply = c.Last<wire::StatusReply>(tool);
    EXPECT_TRUE(reply.has_value());
    EXPECT_EQ(reply->request, 7u);
    return Json::parse(reply->json);
  }
  Json Status() { return Json::parse(c.scheduler->StatusJson(c.now_us)); }
  void ExpectInPlace(size_t there, uint32_t owners) {
    ASSERT_EQ(c.state().servers.size(), there);
    const Json status = Status();
    EXPECT_EQ(status["slots"]["total"], 128);
    EXPECT_EQ(status["slots"]["in_sync"], 128);
    EXPECT_EQ(status["slots"]["copying"], 0);
    EXPECT_EQ(status["slots"]["handing_over"], 0);
    EXPECT_EQ(status["slots"]["single"], owners == 1 ? 128 : 0);
    EXPECT_EQ(status["moves"]["to_copy"], 0);
    double sum = 0;
    for (uint64_t size : c.bytes) sum += static_cast<double>(size) * owners;
    const double mean = sum / static_cast<double>(there), due = 128.0 / static_cast<double>(there);
    for (const Json& server : status["servers"]) {
      EXPECT_NEAR(server["bytes"].get<double>(), mean, 0.1 * mean) << server;
      EXPECT_NEAR(server["primaries"].get<double>(), due, 2) << server;
    }
  }
};

TEST_F(Scaling, OutAndInAgain) {
  ExpectInPlace(2, 2);
  Json status = Scale(4);
  EXPECT_EQ(status["servers_wanted"], 4);
  c.Beat(w0);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting, "waiting for 2 of 4 servers");
  const auto before = c.state().version.value;
  Join(), Join();
  EXPECT_EQ(servers[2]->rank, 2u);
  EXPECT_EQ(servers[3]->rank, 3u);
  EXPECT_EQ(c.state().expected_servers, 4u);
  c.BeatDone(*servers[2]), c.BeatDone(*servers[3]);
  Go(300'000);
  status = Status();
  EXPECT_GT(status["slots"]["copying"], 0);
  EXPECT_GT(status["moves"]["to_copy"], 60);
  EXPECT_GT(status["moves"]["copied"], 0);
  EXPECT_GT(status["moves"]["to_copy"], status["moves"]["copied"]);
  EXPECT_NE(status["servers"][2]["owners"].get<std::string>().find("copying "), std::string::npos) << status;
  Go(20'000'000);
  ExpectInPlace(4, 2);
  EXPECT_LT(c.state().version.value - before, 150u) << "many changes in one record";
  EXPECT_EQ(c.state().failovers, 0u);
  const auto at_rest = c.state().version;
  Go(5'000'000);
  EXPECT_EQ(c.state().version, at_rest) << "nothing moves once all is in place";

  status = Scale(3);
  EXPECT_EQ(status["servers_wanted"], 3);
  EXPECT_EQ(status["servers"][3]["leaving"], true);
  const FakeNode leaver = *servers[3];
  Go(20'000'000);
  ExpectInPlace(3, 2);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(leaver.conn).has_value());
  EXPECT_EQ(c.durable().FindNode(leaver.incarnation)->fate, NodeFate::kLeft);
  FakeNode asks_again = leaver;
  asks_again.conn = c.NewConn();
  c.Beat(asks_again);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(asks_again.conn).has_value()) << "the answer was lost";
  EXPECT_FALSE(c.Last<wire::Refusal>(leaver.conn).has_value());
  EXPECT_TRUE(c.Logged("server 3 (10.0.1.1:9003) has handed everything over and leaves"));

  Scale(1);
  Go(20'000'000);
  ExpectInPlace(1, 1);
  EXPECT_EQ(c.state().replicas, 1u) << "chosen automatically";
  EXPECT_EQ(c.CountLogged("alarm"), 0u);
}

// A slot that is handed over stands still until the record that ends it, which does not wait for the
// next wave; but it begins none either, or a push of many slots would wait for one wave after the other.
TEST_F(Scaling, HandoversComeInWaves) {
  Join(), Join();
  c.BeatDone(*servers[2]), c.BeatDone(*servers[3]);
  int64_t last_wave_us = INT64_MIN / 2;
  size_t waves = 0, ends = 0;
  const auto heirs = [&] {
    std::set<uint32_t> named;
    for (uint32_t slot = 0; slot < c.state().slots.size(); ++slot)
      if (c.state().slots[slot].heir != wire::kNoServer) named.insert(slot);
    return named;
  };
  for (int i = 0; i < 10'000; ++i) {
    const std::set<uint32_t> before = heirs();
    c.now_us += 1'000;
    for (FakeNode* server : There()) c.BeatDone(*server);
    if (i % 100 == 0) c.Beat(w0);
    c.scheduler->OnTick(c.now_us);
    const std::set<uint32_t> after = heirs();
    if (after.size() < before.size()) ++ends;
    if (std::includes(before.begin(), before.end(), after.begin(), after.end())) continue;
    EXPECT_GE(c.now_us - last_wave_us, 50'000);
    last_wave_us = c.now_us;
    ++waves;
  }
  EXPECT_GT(waves, 1u);
  EXPECT_GE(ends, waves) << "a wave ends before the next begins";
  ExpectInPlace(4, 2);
}

TEST_F(Scaling, OfThoseThatWereToGoOnlyAsManyStayAsAreWantedAgain) {
  Scale(4);
  Join(), Join();
  c.BeatDone(*servers[2]), c.BeatDone(*servers[3]);
  Go(20'000'000);
  Scale(2);
  EXPECT_TRUE(c.state().FindServer(2)->leaving && c.state().FindServer(3)->leaving);
  Scale(3);
  EXPECT_FALSE(c.state().FindServer(2)->leaving);
  EXPECT_TRUE(c.state().FindServer(3)->leaving);
  Go(20'000'000);
  ExpectInPlace(3, 2);
}

TEST_F(Scaling, ServerThatWantsToLeaveIsDrainedAndNotReplaced) {
  Join();
  EXPECT_EQ(c.state().expected_servers, 3u) << "one more than asked for simply joins";
  c.BeatDone(*servers[2]);
  Go(20'000'000);
  ExpectInPlace(3, 2);
  servers[0]->beat.leaving = true;
  Go(200'000);
  EXPECT_TRUE(c.state().FindServer(0)->leaving);
  EXPECT_EQ(c.state().expected_servers, 2u);
  Go(20'000'000);
  ExpectInPlace(2, 2);
  EXPECT_EQ(c.state().FindServer(0), nullptr);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(servers[0]->conn).has_value());
  // The others want to go as well: the last ones stay.
  servers[1]->beat.leaving = servers[2]->beat.leaving = true;
  c.Tell(servers[1]->conn, servers[1]->beat);
  Go(20'000'000);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_GE(c.state().servers.size(), 1u);
  EXPECT_TRUE(c.Logged("wants to leave, but no other server would be left"));
}

// All but one were asked to go, and that one wants to go too: nobody could, since nobody would be left.
TEST_F(Scaling, WhereTheLastServerWantsToLeaveOneThatWasToGoStays) {
  Join();
  c.BeatDone(*servers[2]);
  Go(20'000'000);
  servers[2]->beat.leaving = true;  // of its own accord: it is not the one that stays
  Go(200'000);
  Scale(1);
  EXPECT_TRUE(c.state().FindServer(1)->leaving && c.state().FindServer(2)->leaving);
  servers[0]->beat.leaving = true;
  Go(200'000);
  EXPECT_TRUE(c.state().FindServer(0)->leaving);
  EXPECT_FALSE(c.state().FindServer(1)->leaving);
  EXPECT_TRUE(c.Logged("server 1 was to go and stays"));
  Go(20'000'000);
  ExpectInPlace(1, 1);
  EXPECT_NE(c.state().FindServer(1), nullptr);
}

// Nobody stays, since the one that was to has died: of those that were asked to go one is kept as soon as
// another one wants to go.
TEST_F(Scaling, WhereTheOneThatStayedHasDiedOneThatWasToGoStays) {
  Join();
  c.BeatDone(*servers[2]);
  Go(20'000'000);
  Scale(1);
  ASSERT_TRUE(c.state().FindServer(1)->leaving && c.state().FindServer(2)->leaving);
  c.Advance(15'000'000, {servers[1].get(), servers[2].get(), &w0});
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning) << c.state().failure;
  ASSERT_EQ(c.state().FindServer(0), nullptr);
  servers[1]->beat.leaving = true;
  Go(200'000);
  EXPECT_TRUE(c.state().FindServer(1)->leaving);
  EXPECT_FALSE(c.state().FindServer(2)->leaving);
  EXPECT_TRUE(c.Logged("server 2 was to go and stays"));
  EXPECT_EQ(c.state().expected_servers, 1u);
}

// Of those that were asked to go, one that is heard is kept, not one that has just died.
TEST_F(Scaling, OneThatIsHeardStays) {
  Join();
  c.BeatDone(*servers[2]);
  Go(20'000'000);
  Scale(1);
  // Server 1 is silent, not yet declared dead.
  c.Advance(3'000'000, {servers[0].get(), servers[2].get(), &w0});
  ASSERT_NE(c.state().FindServer(1), nullptr);
  servers[0]->beat.leaving = true;
  c.Advance(200'000, {servers[0].get(), servers[2].get(), &w0});
  EXPECT_TRUE(c.state().FindServer(0)->leaving && c.state().FindServer(1)->leaving);
  EXPECT_FALSE(c.state().FindServer(2)->leaving);
}

// With --min-in-sync 2 two servers have to stay, or none could go.
TEST(ScalingWithTwoInSync, OneThatWasToGoStaysInThePlaceOfOneThatWantsTo) {
  FakeCluster c(FakeCluster::Options(3, 1));
  c.options.replicas = c.options.min_in_sync = 2;
  c.Start();
  std::vector<FakeNode> servers;
  for (uint16_t port = 9000; port < 9003; ++port) servers.push_back(c.Server(port));
  FakeNode w0 = c.Worker(1);
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
  const std::vector<FakeNode*> all = {&servers[0], &servers[1], &servers[2]};
  c.AdvanceDone(3'000'000, all, {&w0});
  c.Tell(c.NewConn(), wire::Scale{1, 2});
  ASSERT_TRUE(c.state().FindServer(2)->leaving);
  servers[0].beat.leaving = true;
  c.Advance(200'000, {&servers[0], &servers[1], &servers[2], &w0});
  EXPECT_TRUE(c.state().FindServer(0)->leaving);
  EXPECT_FALSE(c.state().FindServer(2)->leaving);
  EXPECT_EQ(c.state().expected_servers, 2u);
}

// Two servers, one goes: the job is not to hang on the other before it has gone.
TEST_F(Scaling, ServerThatLeavesKeepsItsCopiesUntilItGoes) {
  servers[1]->beat.leaving = true;
  int looks = 0;
  for (; c.state().FindServer(1) != nullptr; ++looks) {
    ASSERT_LT(looks, 200);
    for (const wire::SlotOwner& owner : c.state().slots) ASSERT_EQ(InSyncOwners(owner), 2u);
    Go(100'000);
  }
  EXPECT_GT(looks, 5);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(servers[1]->conn).has_value());
  Go(1'000'000);
  ExpectInPlace(1, 1);
}

TEST_F(Scaling, ServerThatIsLeavingGoesOnAloneIfTheOtherDies) {
  servers[1]->beat.leaving = true;
  Go(300'000);
  ASSERT_TRUE(c.state().FindServer(1)->leaving);
  c.Advance(15'000'000, {servers[1].get(), &w0});  // nothing more can be handed over to the other
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning) << c.state().failure;
  ASSERT_EQ(c.state().servers.size(), 1u);
  for (const wire::SlotOwner& owner : c.state().slots) EXPECT_EQ(owner.server, 1);
  // When another one comes, it may go at last.
  Join();
  Go(20'000'000);
  ExpectInPlace(1, 1);
  EXPECT_EQ(c.state().FindServer(1), nullptr);
}

TEST_F(Scaling, ReplacementOfAKilledServerDoesNotRaiseTheNumberWanted) {
  Scale(3);
  Join();
  c.BeatDone(*servers[2]);
  Go(20'000'000);
  c.scheduler->OnDisconnect(servers[1]->conn, c.now_us);  // killed; its successor has another port
  servers[1]->incarnation = Incarnation(0);
  Join();
  EXPECT_EQ(servers[3]->rank, 3u) << "the old one is not known to be dead yet";
  EXPECT_EQ(c.state().expected_servers, 3u);
  c.BeatDone(*servers[3]);
  Go(30'000'000);
  ExpectInPlace(3, 2);
  EXPECT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_GT(c.state().failovers, 0u);
}

TEST_F(Scaling, ServersThatWereToGoMayBeKept) {
  Scale(1);
  EXPECT_TRUE(c.state().FindServer(1)->leaving);
  Scale(2);
  EXPECT_FALSE(c.state().FindServer(1)->leaving);
  EXPECT_EQ(c.state().expected_servers, 2u);
  Go(20'000'000);
  ExpectInPlace(2, 2);
  EXPECT_EQ(c.state().servers.size(), 2u);
}

TEST_F(Scaling, ServerThatWantsToLeaveIsNotKept) {
  servers[1]->beat.leaving = true;
  Go(200'000);
  ASSERT_TRUE(c.state().FindServer(1)->leaving);
  Scale(2);
  EXPECT_TRUE(c.Logged("the job is to have 2 servers; 1 server more to come"));
  EXPECT_TRUE(c.state().FindServer(1)->leaving);
  Go(20'000'000);
  EXPECT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().expected_servers, 2u) << "another one is to come for it";
}

TEST_F(Scaling, RefusalsSayWhatIsPossible) {
  auto refused = [&](uint32_t n) {
    const auto version = c.state().version;
    const ConnId conn = c.NewConn();
    c.Tell(conn, wire::Scale{9, n});
    EXPECT_EQ(c.state().version, version);
    EXPECT_FALSE(c.Last<wire::StatusReply>(conn).has_value());
    return c.Last<wire::Refusal>(conn).value_or(wire::Refusal{});
  };
  EXPECT_EQ(refused(0).code, Code::kInvalidArgument);
  EXPECT_EQ(refused(0).request, 9u);
  EXPECT_EQ(refused(129).text, "this job can have 1 to 128 servers (one for each partition), not 129");
  const auto version = c.state().version;
  Scale(2);
  EXPECT_EQ(c.state().version, version) << "nothing to do";
  c.Tell(tool, wire::AbortJob{"enough"});
  EXPECT_EQ(refused(3).code, Code::kJobFailed);
  FakeCluster forming(Options());
  forming.Start();
  forming.Tell(ConnId(5), wire::Scale{1, 3});
  EXPECT_EQ(forming.Last<wire::Refusal>(ConnId(5))->code, Code::kUnavailable);
}

TEST_F(Scaling, TablesWaitForServersThatHaveJustJoined) {
  Join();
  for (auto& server : servers) server->beat.version = c.state().version;
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  c.Beat(*servers[0]), c.Beat(*servers[1]);
  EXPECT_FALSE(c.Last<wire::TableReply>(w0.conn).has_value());
  c.Beat(*servers[2]);
  EXPECT_TRUE(c.Last<wire::TableReply>(w0.conn).has_value());
}

TEST_F(Scaling, SchedulerKilledAtAnyRecordGoesOnToTheSameEnd) {
  Scale(4);
  Join(), Join();
  c.BeatDone(*servers[2]), c.BeatDone(*servers[3]);
  Go(2'000'000);
  c.scheduler->OnDisconnect(servers[1]->conn, c.now_us);
  const Incarnation dead = servers[1]->incarnation;
  servers[1]->incarnation = Incarnation(0);
  Go(7'000'000);
  ASSERT_EQ(c.state().FindServer(1), nullptr);
  Scale(2);
  Go(10'000'000);
  ASSERT_EQ(c.state().servers.size(), 2u);
  servers[1]->incarnation = dead;
  const MemoryStore::Records records = c.memory.records();
  ASSERT_GT(records.size(), 30u);
  for (size_t n = records.size(); n > 0; --n) {
    auto record = DecodeRecord(records[n - 1]);
    ASSERT_TRUE(record.ok());
    if (!record->running()) break;
    SCOPED_TRACE("killed after record " + std::to_string(n));
    FakeCluster again(c.options);
    again.bytes = c.bytes;
    for (size_t i = 0; i < n; ++i) (void)again.memory.Append(records[i]);
    again.Start();
    EXPECT_EQ(again.durable().moving_from, record->moving_from);
    EXPECT_EQ(again.durable().moves_done, record->moves_done);
    EXPECT_EQ(again.state().slots, record->state.slots);
    FakeNode worker = w0;
    worker.conn = again.NewConn();
    std::vector<FakeNode> nodes;
    for (const wire::ServerInfo& info : again.state().servers)
      for (const auto& server : servers)
        if (server->incarnation == info.incarnation) {
          nodes.push_back(*server);
          nodes.back().conn = again.NewConn();
          nodes.back().beat = {.incarnation = server->incarnation, .uid = server->hello.uid};
        }
    ASSERT_EQ(nodes.size(), again.state().servers.size());
    const uint32_t staying = StayingServers(again.state());
    for (int i = 0; i < 150; ++i) {
      std::vector<FakeNode*> there;
      for (FakeNode& node : nodes)
        if (again.state().FindServer(node.rank) != nullptr) there.push_back(&node);
      again.AdvanceDone(100'000, there, {&worker});
    }
    EXPECT_EQ(again.state().servers.size(), staying);
    for (const wire::SlotOwner& slot : again.state().slots) {
      ASSERT_EQ(InSyncOwners(slot), std::min(2u, staying));
      ASSERT_EQ(slot.backups.size() + 1, std::min(2u, staying));
      ASSERT_EQ(slot.heir, wire::kNoServer);
    }
    EXPECT_EQ(again.CountLogged("alarm"), 0u);
  }
}

}  // namespace
}  // namespace cairn::scheduler

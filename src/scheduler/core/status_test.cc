// The numbers of `cairn status` that say how well off the slots and servers are.
#include <nlohmann/json.hpp>

#include "scheduler/core/fake_cluster.h"
#include "scheduler/placement/traffic.h"
#include "scheduler/placement/traffic_watch.h"

namespace cairn::scheduler {
namespace {

using StatusReport = nlohmann::json;

struct StatusOf : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 1)};
  FakeNode s0, s1, w0;
  void Begin(uint32_t replicas, uint32_t min_in_sync) {
    c.options.replicas = replicas;
    c.options.min_in_sync = min_in_sync;
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
    c.Advance(1'000'000, {&s0, &s1, &w0});
  }
  StatusReport Now() { return StatusReport::parse(c.scheduler->StatusJson(c.now_us)); }
};

TEST_F(StatusOf, SlotsWithAsManyOwnersAsThereAreServersAreSettled) {
  Begin(2, 2);
  StatusReport slots = Now()["slots"];
  EXPECT_EQ(slots["in_sync"], 16);
  EXPECT_EQ(slots["settled"], 16);
  EXPECT_EQ(slots["single"], 0);
  EXPECT_EQ(slots["blocked"], 0);
  c.Advance(5'100'000, {&s0, &w0});
  ASSERT_EQ(c.state().servers.size(), 1u);
  slots = Now()["slots"];
  EXPECT_EQ(slots["in_sync"], 0);
  EXPECT_EQ(slots["settled"], 16);
  EXPECT_EQ(slots["single"], 16);
  EXPECT_EQ(slots["blocked"], 16);
}

TEST_F(StatusOf, AServerThatIsSilentAndNeededIsCalledLost) {
  Begin(1, 1);
  EXPECT_EQ(Now()["servers"][1]["lost"], false);
  EXPECT_EQ(Now()["slots"]["blocked"], 0) << "one owner is asked for, and there";
  c.Advance(6'000'000, {&s0, &w0});
  EXPECT_EQ(Now()["servers"][0]["lost"], false);
  EXPECT_EQ(Now()["servers"][1]["lost"], true);
  EXPECT_EQ(Now()["servers"][1]["seconds_since_heard"], 6.0);
}

TEST_F(StatusOf, HowStaleAWorkersReadsAre) {
  Begin(1, 1);
  EXPECT_FALSE(Now()["workers"][0].contains("staleness")) << "it reads no bounded table";
  w0.beat.staleness = {90, 9, 1};
  c.Beat(w0);
  EXPECT_EQ(Now()["workers"][0]["staleness"], StatusReport({90, 9, 1}));
}

TEST_F(StatusOf, WhatAServerSaysOfItself) {
  Begin(1, 1);
  s0.beat.stats.replicated_bytes = 700;
  s0.beat.stats.unconfirmed_bytes = 30;
  s0.beat.stats.memory = {MemoryKind::kMachine, 12345, 1};
  c.Beat(s0);
  const StatusReport servers = Now()["servers"];
  EXPECT_EQ(servers[0]["unconfirmed_bytes"], 30);
  EXPECT_EQ(servers[0]["stats"]["replicated_bytes"], 700);
  EXPECT_EQ(servers[0]["stats"]["memory_left_bytes"], 12345);
  EXPECT_TRUE(servers[1]["stats"]["memory_left_bytes"].is_null()) << "not known";
}

TEST_F(StatusOf, PushesAreWorkOfBackupsTooAndPullsOfThePrimaryAlone) {
  Begin(2, 1);
  ASSERT_EQ(c.state().slots[0].server, 0);
  s0.beat.loads = {{0, 1, 0, 1000, 500}};
  c.Beat(s0);
  c.now_us += 1'000'000;
  s0.beat.loads = {{0, 1, 0, 5000, 2500}};
  c.Beat(s0);
  const StatusReport servers = Now()["servers"];
  const double primary = servers[0]["work_per_s"], backup = servers[1]["work_per_s"];
  EXPECT_GT(backup, 0);
  EXPECT_NEAR(primary / backup, 1.5, 0.01);
}

TEST(TrafficRates, OfPushesAndPullsAreSeparateAndMovedSlotsRest) {
  TrafficOptions options;
  TrafficWatch watch(options);
  watch.Take({0, 1, 0, 0, 0}, 0, 0);
  watch.Take({0, 1, 0, 4000, 1000}, 0, 1'000'000);
  const SlotTraffic rates = watch.Rates(1'000'000);
  ASSERT_EQ(rates.pulled.size(), 1u);
  EXPECT_GT(rates.pulled[0], 0);
  EXPECT_NEAR(rates.pushed[0] / rates.pulled[0], 4, 1e-9);
  EXPECT_FALSE(rates.resting[0]);
  watch.Moved({0}, 2'000'000);
  EXPECT_EQ(watch.moved(), 1u);
  EXPECT_TRUE(watch.Rates(2'000'000 + options.rest_us - 1).resting[0]);
  EXPECT_FALSE(watch.Rates(2'000'000 + options.rest_us).resting[0]);
}

}  // namespace
}  // namespace cairn::scheduler

// Slots follow their traffic (rule 53): skew is evened out without hurting the bytes; what is balanced, is
// noise, is over soon, or can't be split moves nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scheduler/core/fake_cluster.h"
#include "scheduler/placement/placement_harness.h"
#include "scheduler/placement/traffic.h"
#include "scheduler/placement/traffic_watch.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

constexpr double kHot = 1.25;

// Some slots of every server have traffic; those that server 0 leads have `skew` times as much.
void MakeSkewed(Cluster& c, double skew) {
  const size_t slots = c.d.state.slots.size();
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const double times = c.d.state.slots[slot].server == 0 ? skew : 1;
    c.traffic.pushed.push_back(times * static_cast<double>(50 + c.Below(100)));
    c.traffic.pulled.push_back(times * static_cast<double>(50 + c.Below(100)));
  }
}
// Until it rests. The slots that were moved for traffic.
size_t RestWithTraffic(Cluster& c) {
  size_t moved = 0;
  for (int steps = 0; steps < 200; ++steps) {
    const auto before = c.d.state.slots;
    moved += c.TrafficStep();
    if (c.d.state.slots == before && CopyingSlots(c.d.state) == 0) return moved;
  }
  ADD_FAILURE() << "it never comes to rest";
  return moved;
}

TEST(Traffic, SkewIsEvenedOutAndBytesStayInPlace) {
  for (uint32_t replicas : {1u, 2u, 3u})
    for (uint32_t servers : {3u, 4u, 7u})
      for (uint32_t threads : {1u, 2u}) {
        if (servers == replicas) continue;  // all have everything: pushes can't go anywhere
        SCOPED_TRACE(std::to_string(servers) + " servers of " + std::to_string(threads) + " threads, " +
                     std::to_string(replicas) + " replicas");
        Cluster c(replicas, servers, 256, replicas, threads);
        c.Rest();
        MakeSkewed(c, 5);
        ASSERT_GT(SpreadOf(c.d.state, c.traffic).of_mean(), kHot);
        const size_t moved = RestWithTraffic(c);
        EXPECT_LE(SpreadOf(c.d.state, c.traffic).of_mean(), kHot);
        c.ExpectInPlace(0.10);
        EXPECT_LE(moved, 256u * replicas) << "no more than needed";
        const auto before = c.d.state.slots;
        EXPECT_EQ(c.TrafficStep(), 0u);
        EXPECT_FALSE(c.Step(true)) << "the bytes' side leaves it alone";
        EXPECT_EQ(c.d.state.slots, before);
      }
}

TEST(Traffic, WhereAllHaveEverythingPrimariesAreExchanged) {
  Cluster c(1, 2, 64, 2);
  c.Rest();
  c.traffic.pushed.assign(64, 1);
  for (uint32_t slot = 0; slot < 64; ++slot)
    c.traffic.pulled.push_back(c.d.state.slots[slot].server == 0 && slot % 3 != 0 ? 100 : 10);
  ASSERT_GT(SpreadOf(c.d.state, c.traffic).of_mean(), kHot);
  c.copies = 0;
  RestWithTraffic(c);
  EXPECT_LE(SpreadOf(c.d.state, c.traffic).of_mean(), 1.12);
  EXPECT_EQ(c.copies, 0u) << "nothing has to be copied for it";
  c.ExpectInPlace(0.10);
}

TEST(Traffic, BalancedTrafficMovesNothing) {
  for (uint32_t replicas : {1u, 2u}) {
    Cluster c(1, 4, 256, replicas);
    c.bytes.assign(256, 1 << 20);
    c.Rest();
    for (uint32_t slot = 0; slot < 256; ++slot) {
      c.traffic.pushed.push_back(static_cast<double>(95 + c.Below(10)));
      c.traffic.pulled.push_back(static_cast<double>(95 + c.Below(10)));
    }
    EXPECT_EQ(c.TrafficStep(), 0u);
  }
}

// It has its thread to itself in the end, and stays there.
TEST(Traffic, OneHotSlotDoesNotWander) {
  for (uint32_t replicas : {1u, 2u}) {
    Cluster c(1, 4, 64, replicas);
    c.Rest();
    c.traffic.pushed.assign(64, 0);
    c.traffic.pulled.assign(64, 0);
    c.traffic.pushed[5] = c.traffic.pulled[5] = 1000;
    EXPECT_EQ(c.TrafficStep(), 0u) << "all of the traffic";
    for (uint32_t slot = 0; slot < 64; ++slot) c.traffic.pulled[slot] += 10;
    const size_t moved = RestWithTraffic(c);
    EXPECT_LE(moved, 64u);
    const auto before = c.d.state.slots;
    for (int i = 0; i < 5; ++i) {
      c.traffic.pushed[5] += 100;
      EXPECT_EQ(c.TrafficStep(), 0u) << "more of it does not make it movable";
    }
    EXPECT_EQ(c.d.state.slots, before);
  }
}

TEST(Traffic, SlotsThatRestStay) {
  Cluster c(1, 3, 64, 1);
  c.Rest();
  MakeSkewed(c, 5);
  c.traffic.resting.assign(64, true);
  EXPECT_EQ(c.TrafficStep(), 0u);
}

TEST(Traffic, AvoidedServersTakeNoPart) {
  Cluster c(1, 3, 64, 1);
  c.Rest();
  MakeSkewed(c, 5);
  c.limits.avoid = {1};
  EXPECT_GT(c.TrafficStep(), 0u);
  for (const wire::SlotOwner& owner : c.d.state.slots) EXPECT_EQ(owner.FindBackup(1), nullptr);
}

// A thousand servers, a tenth of them with five times the work: the planner is asked as often as needed.
TEST(Traffic, LargeClustersAreEvenedOutToo) {
  Cluster c(1, 1000, 16'000, 2);
  for (uint32_t slot = 0; slot < 16'000; ++slot) {
    const double times = c.d.state.slots[slot].server < 100 ? 5 : 1;
    c.bytes[slot] = 1 << 20;
    c.traffic.pushed.push_back(times * 100);
    c.traffic.pulled.push_back(times * static_cast<double>(50 + c.Below(100)));
  }
  RestWithTraffic(c);
  EXPECT_LE(SpreadOf(c.d.state, c.traffic).of_mean(), kHot);
}

// --- when ---

class Watch : public ::testing::Test {
 protected:
  Watch() : c_(1, 2, 8, 1), watch_(options_) { pushed_.assign(8, 0); }
  // So many seconds with so much work a second in each slot of a server; how often slots should move.
  int Run(int seconds, uint64_t at_0, uint64_t at_1, bool quiet = true) {
    int due = 0;
    for (int i = 0; i < seconds; ++i) {
      now_us_ += 1'000'000;
      for (uint32_t slot = 0; slot < 8; ++slot) {
        const uint16_t server = c_.d.state.slots[slot].server;
        pushed_[slot] += server == 0 ? at_0 : at_1;
        watch_.Take({slot, 1, 1, pushed_[slot], 0}, server, now_us_);
      }
      due += watch_.Due(c_.d.state, quiet, now_us_) ? 1 : 0;
    }
    return due;
  }
  static constexpr uint64_t kMiB = 1 << 20;
  TrafficOptions options_;
  Cluster c_;
  TrafficWatch watch_;
  std::vector<uint64_t> pushed_;
  int64_t now_us_ = 1'000'000;
};

TEST_F(Watch, LastingSkewIsDue) {
  EXPECT_EQ(Run(14, 20 * kMiB, 10 * kMiB), 0) << "not at once";
  EXPECT_GT(Run(20, 20 * kMiB, 10 * kMiB), 0);
}

TEST_F(Watch, EvenTrafficIsNot) { EXPECT_EQ(Run(60, 22 * kMiB, 20 * kMiB), 0); }

TEST_F(Watch, LittleTrafficIsNot) { EXPECT_EQ(Run(60, kMiB / 2, 0), 0); }

TEST_F(Watch, NoiseIsNot) {
  for (int i = 0; i < 60; ++i) {
    const uint64_t at_0 = c_.Below(40) * kMiB, at_1 = c_.Below(40) * kMiB;
    EXPECT_EQ(Run(1, at_0, at_1), 0) << "second " << i;
  }
}

TEST_F(Watch, ABurstIsNot) {
  Run(30, 10 * kMiB, 10 * kMiB);
  EXPECT_EQ(Run(6, 200 * kMiB, 10 * kMiB), 0);
  EXPECT_EQ(Run(60, 10 * kMiB, 10 * kMiB), 0) << "it is in the mean for long, but it is over";
}

TEST_F(Watch, TwoBurstsAreNot) {
  Run(30, 10 * kMiB, 10 * kMiB);
  EXPECT_EQ(Run(6, 200 * kMiB, 10 * kMiB), 0);
  Run(30, 10 * kMiB, 10 * kMiB);
  EXPECT_EQ(Run(6, 200 * kMiB, 10 * kMiB), 0) << "what lies between them was even";
}

TEST_F(Watch, NotWhileSomethingIsUnderWay) { EXPECT_EQ(Run(60, 20 * kMiB, 10 * kMiB, false), 0); }

TEST_F(Watch, WhatWasInVainIsNotTriedAgainSoon) {
  ASSERT_GT(Run(20, 20 * kMiB, 10 * kMiB), 0);
  watch_.Moved({}, now_us_);
  EXPECT_EQ(Run(59, 20 * kMiB, 10 * kMiB), 0);
  EXPECT_GT(Run(15, 20 * kMiB, 10 * kMiB), 0);
}

TEST_F(Watch, ANewPrimaryCountsFromItsOwnBeginning) {
  Run(30, 10 * kMiB, 10 * kMiB);
  const double before = watch_.Rates(now_us_).pushed[0];
  now_us_ += 1'000'000;
  watch_.Take({0, 1, 1, uint64_t{1} << 50, 0}, 1 - c_.d.state.slots[0].server, now_us_);
  EXPECT_EQ(watch_.Rates(now_us_).pushed[0], before) << "its count is no rate";
}

// --- the whole scheduler ---

TEST(TrafficScheduler, MovesSlotsOnceAndRests) {
  SchedulerOptions options = FakeCluster::Options(3, 1);
  options.slot_count = 48;
  FakeCluster c(options);
  c.Start();
  FakeNode servers[] = {c.Server(1), c.Server(2), c.Server(3)};
  FakeNode worker = c.Worker(1);
  const std::vector<FakeNode*> all = {&servers[0], &servers[1], &servers[2]};
  c.bytes.assign(48, 1 << 20);
  c.AdvanceDone(2'000'000, all, {&worker});
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
  std::vector<double> rate(48);
  for (uint32_t slot = 0; slot < 48; ++slot) rate[slot] = c.state().slots[slot].server == 0 ? 3e6 : 1e6;
  SlotTraffic traffic{rate, std::vector<double>(48), {}};
  ASSERT_GT(SpreadOf(c.state(), traffic).of_mean(), 1.5);
  auto run = [&](int seconds) {
    for (int i = 0; i < seconds * 10; ++i) {
      c.pushed.resize(48);
      for (uint32_t slot = 0; slot < 48; ++slot) c.pushed[slot] += static_cast<uint64_t>(rate[slot] / 10);
      c.AdvanceDone(100'000, all, {&worker});
    }
  };
  run(5);
  EXPECT_EQ(c.scheduler->state().failovers, 0u);
  EXPECT_FALSE(c.Logged("times the work of the mean")) << "not at once";
  run(120);
  EXPECT_TRUE(c.Logged("times the work of the mean"));
  EXPECT_LE(SpreadOf(c.state(), traffic).of_mean(), kHot);
  const auto before = c.state().slots;
  run(120);
  EXPECT_EQ(c.state().slots, before) << "and that was it";
}

// Two servers have counted rows of one table; a row that its slot's primary does not name is not shown.
TEST(HotRowsInStatus, SharesAreOfAllServers) {
  FakeCluster c(FakeCluster::Options(2, 1));
  c.Start();
  FakeNode servers[] = {c.Server(1), c.Server(2)};
  FakeNode worker = c.Worker(1);
  for (FakeNode& server : servers) c.Beat(server);
  c.Beat(worker);
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
  TableSpec spec{.name = "emb", .kind = TableKind::kSparse, .mode = Mode::kAsync};
  spec.dim = 4;
  c.Tell(worker.conn, wire::CreateTable{1, worker.incarnation, spec});
  ASSERT_EQ(c.state().tables.size(), 1u);
  const TableId table = c.state().tables[0].id;
  auto led_by = [&](uint32_t server, uint64_t from) {
    while (c.state().slots[wire::SlotOfKey(from, 16).value].server != server) ++from;
    return from;
  };
  const uint64_t first = led_by(0, 1), second = led_by(1, 1), elsewhere = led_by(0, 1000);
  servers[0].beat.hot_rows = {{table, first, 300}};
  servers[0].beat.sampled = {{table, 600}};
  servers[1].beat.hot_rows = {{table, elsewhere, 390}, {table, second, 100}};
  servers[1].beat.sampled = {{table, 400}};
  for (FakeNode& server : servers) c.Beat(server);
  const std::string json = c.scheduler->StatusJson(c.now_us);
  auto row = [&](uint64_t key, const char* share, uint32_t server) {
    return "{\"key\":" + std::to_string(key) + ",\"share\":" + share +
           ",\"slot\":" + std::to_string(wire::SlotOfKey(key, 16).value) +
           ",\"server\":" + std::to_string(server) + "}";
  };
  const std::string wanted = "\"hot_rows\":[" + row(first, "0.3", 0) + "," + row(second, "0.1", 1) + "]";
  EXPECT_NE(json.find(wanted), std::string::npos) << json << "\n" << wanted;
}

}  // namespace
}  // namespace cairn::scheduler

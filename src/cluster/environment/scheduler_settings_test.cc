#include "cluster/environment/scheduler_settings.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

TEST(SchedulerSettings, EverySettingOfTheEnvironmentReachesTheScheduler) {
  const Result<Environment> environment = ReadEnvironment({{"CAIRN_ROLE", "scheduler"},
                                                           {"CAIRN_SCHEDULER", "127.0.0.1:9000"},
                                                           {"CAIRN_NUM_SERVERS", "4"},
                                                           {"CAIRN_NUM_WORKERS", "5"},
                                                           {"CAIRN_CLUSTER_ID", "name"},
                                                           {"CAIRN_SLOTS", "64"},
                                                           {"CAIRN_REPLICAS", "3"},
                                                           {"CAIRN_MIN_IN_SYNC", "2"},
                                                           {"CAIRN_HEARTBEAT_MS", "100"},
                                                           {"CAIRN_DEAD_AFTER_MS", "700"},
                                                           {"CAIRN_LOST_AFTER_MS", "9000"},
                                                           {"CAIRN_REJOIN_GRACE_MS", "800"},
                                                           {"CAIRN_DEADLOCK_AFTER_MS", "20000"}});
  ASSERT_TRUE(environment.ok()) << environment.status().ToString();
  scheduler::SchedulerOptions options;
  ApplySettings(*environment, options);
  EXPECT_EQ(options.expected_servers, 4u);
  EXPECT_EQ(options.expected_workers, 5u);
  EXPECT_EQ(options.cluster_id, "name");
  EXPECT_EQ(options.slot_count, 64u);
  EXPECT_EQ(options.replicas, 3u);
  EXPECT_EQ(options.min_in_sync, 2u);
  EXPECT_EQ(options.heartbeat_us, 100'000);
  EXPECT_EQ(options.dead_after_us, 700'000);
  EXPECT_EQ(options.lost_after_us, 9'000'000);
  EXPECT_EQ(options.rejoin_grace_us, 800'000);
  EXPECT_EQ(options.deadlock_after_us, 20'000'000);
}

TEST(SchedulerSettings, WhatTheEnvironmentDoesNotSayStays) {
  scheduler::SchedulerOptions options;
  options.replicas = 2;
  options.heartbeat_us = 123;
  ApplySettings(Environment(), options);
  EXPECT_EQ(options.replicas, 2u);
  EXPECT_EQ(options.heartbeat_us, 123);
  EXPECT_EQ(options.lost_after_us, scheduler::SchedulerOptions().lost_after_us);
}

}  // namespace
}  // namespace cairn::cluster

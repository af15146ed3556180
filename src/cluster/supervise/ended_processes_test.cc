#include "cluster/supervise/ended_processes.h"

#include <gtest/gtest.h>

namespace cairn::cluster {
namespace {

using Processes = std::vector<EndedProcess>;

TEST(EndedProcesses, AreToldAgainUntilTheSchedulerHasAnswered) {
  EndedProcesses ended(1000);
  ended.Add({7});
  EXPECT_EQ(ended.TakeDue(5), Processes{{7}});
  EXPECT_EQ(ended.TakeDue(1004), Processes{});
  ended.Add({8});
  EXPECT_EQ(ended.TakeDue(1004), Processes{{8}});
  EXPECT_EQ(ended.TakeDue(1005), Processes{{7}});
  ended.OnTold(7);
  EXPECT_EQ(ended.TakeDue(9000), Processes{{8}});
  ended.OnTold(8);
  EXPECT_EQ(ended.TakeDue(99'000), Processes{});
}

TEST(EndedProcesses, WhatItDiedOfIsToldEachTime) {
  EndedProcesses ended(1000);
  ended.Add({7, true});
  EXPECT_EQ(ended.TakeDue(5), (Processes{{7, true}}));
  EXPECT_EQ(ended.TakeDue(1005), (Processes{{7, true}}));
}

TEST(EndedProcesses, OneThatNeverSaidItsUidIsToldToNobody) {
  EndedProcesses ended(1000);
  ended.Add({0});
  EXPECT_EQ(ended.TakeDue(5), Processes{});
}

TEST(EndedProcesses, OnesThatLeftAreToldOnlyToASchedulerThatWasStartedAgain) {
  EndedProcesses ended(1000);
  ended.AddLeft(7);
  EXPECT_EQ(ended.TakeDue(5), Processes{});
  ended.OnSchedulerStartedAgain();
  EXPECT_EQ(ended.TakeDue(6), Processes{{7}});
  ended.AddLeft(8);
  EXPECT_EQ(ended.TakeDue(7), Processes{{8}}) << "it may have gone on the word of the scheduler before";
}

TEST(EndedProcesses, AreBounded) {
  EndedProcesses ended(1000);
  for (uint64_t uid = 1; uid <= 5000; ++uid) ended.Add({uid});
  EXPECT_LE(ended.TakeDue(5).size(), 1024u);
}

}  // namespace
}  // namespace cairn::cluster

// The journal: logged, then installed, then told; and what barriers make of what it holds.
#include "scheduler/core/journal.h"

#include <gtest/gtest.h>

#include "scheduler/core/barriers.h"
#include "scheduler/core/fake_cluster.h"
#include "scheduler/metastore/memory_store.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {
namespace {

struct JournalTest : ::testing::Test, Journal::Listener {
  void OnCommitted(wire::Phase before) override {
    ++told;
    phase_before = before;
  }
  void OnStoreFailed() override { ++failed; }

  static DurableState Empty() {
    DurableState d;
    d.slot_count = 4;
    d.initial_servers = d.state.expected_servers = 1;
    d.state.expected_workers = 2;
    return d;
  }
  void Change(void (*change)(DurableState&)) {
    DurableState next = journal.Next();
    change(next);
    ASSERT_TRUE(journal.Commit(std::move(next)));
  }
  // A server, and workers with ranks 0 and 1.
  void FormJob() {
    ASSERT_TRUE(journal.Load(Empty()).ok());
    Change([](DurableState& d) {
      AddNode(d, {.role = wire::Role::kServer, .uid = 1, .endpoint = {"h", 1}, .threads = 1}, 0, 0);
      for (uint32_t rank : {0u, 1u})
        AddNode(d, {.role = wire::Role::kWorker, .uid = 2 + rank, .endpoint = {"w", 0}}, rank, 0);
    });
    Change([](DurableState& d) { Form(d); });
  }
  Incarnation Worker(size_t i) const { return journal.state().workers.at(i).incarnation; }

  MemoryStore memory;
  FailingStore store{memory};
  int told = 0, failed = 0;
  wire::Phase phase_before = wire::Phase::kForming;
  Journal journal{store, uint64_t{1} << 20, nullptr, *this};
};

TEST_F(JournalTest, WhatIsCommittedIsFoundByTheNext) {
  FormJob();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(journal.commits(), 2u);
  EXPECT_EQ(phase_before, wire::Phase::kForming);
  Journal next(store, uint64_t{1} << 20, nullptr, *this);
  ASSERT_TRUE(next.Load(Empty()).ok());
  EXPECT_FALSE(next.was_empty());
  EXPECT_EQ(next.durable(), journal.durable());
}

TEST_F(JournalTest, AfterAFailureNothingIsCommittedAndNobodyIsTold) {
  FormJob();
  const DurableState before = journal.durable();
  store.appends_left = 0;
  EXPECT_FALSE(journal.Commit(journal.Next()));
  EXPECT_FALSE(journal.ok());
  EXPECT_EQ(failed, 1);
  store.appends_left = -1;
  EXPECT_FALSE(journal.Commit(journal.Next())) << "the record may be there or not";
  EXPECT_EQ(journal.durable(), before);
  EXPECT_EQ(told, 2);
}

TEST_F(JournalTest, AnUntoldRecordFailsAlone) {
  FormJob();
  store.appends_left = 0;
  EXPECT_FALSE(journal.CommitUntold(journal.Next()).ok());
  EXPECT_TRUE(journal.ok());
  store.appends_left = -1;
  ASSERT_TRUE(journal.CommitUntold(journal.Next()).ok());
  EXPECT_EQ(told, 2);
}

TEST_F(JournalTest, ABarrierOpensWhenTheLastWorkerHasEnteredIt) {
  FormJob();
  Barriers barriers(journal);
  barriers.Take(Worker(0), 1);
  EXPECT_EQ(barriers.Open(), 0u) << "the other one has not been heard";
  barriers.Take(Worker(1), 2);
  EXPECT_EQ(barriers.Open(), 1u);
  EXPECT_TRUE(barriers.TakeOpened());
  EXPECT_FALSE(barriers.TakeOpened());
  barriers.Take(Worker(0), 0);  // a late copy
  EXPECT_EQ(barriers.Count(Worker(0)), 1u);
  const Incarnation left = Worker(0);
  Change([](DurableState& d) { RemoveWorker(d, d.state.workers.front().incarnation, NodeFate::kLeft); });
  barriers.Forget(left);
  EXPECT_EQ(barriers.Open(), 2u) << "it counts for nobody any more";
}

TEST_F(JournalTest, ANewWorkerBeginsWhereTheBarriersStand) {
  FormJob();
  Barriers barriers(journal);
  uint32_t unheard = 99;
  barriers.Take(Worker(0), 7);
  EXPECT_FALSE(barriers.SmallestCount(std::nullopt, &unheard));
  EXPECT_EQ(unheard, 1u);
  EXPECT_EQ(barriers.SmallestCount(Rank(1), &unheard), 7u);
  barriers.Begin(Worker(1), 7);
  EXPECT_EQ(barriers.SmallestCount(std::nullopt, &unheard), 7u);
}

}  // namespace
}  // namespace cairn::scheduler

// View changes: holds, first rounds, and rounds that nobody is left to contribute to.
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

struct Views {
  explicit Views(uint32_t workers) : h(workers) {
    table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
    h.SkipAnswers();
  }
  void PlayRound(uint64_t round, std::vector<uint32_t> ranks) {
    for (uint32_t rank : ranks) h.Deliver(rank, h.Give(rank, table, round, 1, 1.0f));
    h.SkipAnswers();
  }
  // A worker registers, and the scheduler logs that a view is to come.
  void Intend(uint32_t rank) {
    h.AddWorker(rank, ViewNumber{0});
    h.state.pending_view = h.state.view.Next();
    h.Publish();
  }
  void Go(uint64_t start) {
    h.state.view = h.state.pending_view;
    h.state.pending_view = ViewNumber{0};
    h.state.views.push_back({h.state.view, {{table, Round{start}}}});
    for (wire::WorkerInfo& worker : h.state.workers)
      if (worker.join_view == ViewNumber{0}) worker.join_view = h.state.view;
    h.Publish();
  }
  ShardHarness h;
  TableId table;
};

// A table that nobody steps: a newcomer that started after its open round could not read before
// that round closes, while the others may wait for the newcomer in another table.
TEST(ViewsTest, AnOpenRoundThatNobodyHasBegunAwaitsTheNewcomer) {
  Views v(2);
  auto& h = v.h;
  v.PlayRound(0, {0, 1});
  v.Intend(2);
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{v.table, Round{1}}}));
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, v.table, 1, 1, 3.0f));
  EXPECT_EQ(h.Open(v.table, 1), 1u) << "the newcomer is awaited in it";
  v.Go(1);
  h.Connect(2);
  h.SkipAnswers();
  h.Deliver(2, h.Pull(2, v.table, {1}, 1));
  EXPECT_EQ(h.Answer(2), "values -1") << "the values before the round, at once";
  h.Deliver(2, h.Give(2, v.table, 1, 1, 3.0f));
  EXPECT_EQ(h.Open(v.table, 1), 2u);
  EXPECT_EQ(h.seen.closed.back().divisor, 3.0);
}

TEST(ViewsTest, AContributionOfADeadWorkerHasBegunTheRound) {
  Views v(2);
  auto& h = v.h;
  h.Deliver(0, h.Contribute(0, v.table, 0, {{1, 3.0f}}, {}));
  h.Kill(0);
  v.Intend(2);
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{v.table, Round{1}}}));
}

TEST(ViewsTest, AHeldShardReportsTheRoundAfterOneThatHasBegunAndClosesNoneFromItOn) {
  Views v(2);
  auto& h = v.h;
  v.PlayRound(0, {0, 1});
  v.PlayRound(1, {0, 1});
  h.Deliver(0, h.Give(0, v.table, 2, 1, 1.0f));
  v.Intend(2);
  EXPECT_EQ(h.shard->hold_view(), ViewNumber{2});
  const std::vector<wire::TableRound> held = {{v.table, Round{3}}};
  EXPECT_EQ(h.shard->hold_rounds(), held);
  h.Deliver(1, h.Give(1, v.table, 2, 1, 1.0f));
  h.SkipAnswers();
  EXPECT_EQ(h.Open(v.table, 1), 3u) << "the round that had begun may close";
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, v.table, 3, 1, 1.0f));
  EXPECT_EQ(h.Open(v.table, 1), 3u) << "the next may not, though all are done";
  EXPECT_EQ(h.shard->hold_rounds(), held) << "frozen";
  EXPECT_EQ(h.Answer(0), "");

  v.Go(4);  // another server had reported 4
  EXPECT_EQ(h.shard->hold_view(), ViewNumber{0});
  EXPECT_TRUE(h.shard->hold_rounds().empty());
  EXPECT_EQ(h.Open(v.table, 1), 4u) << "round 3 is the old view's";
  EXPECT_EQ(h.Answer(0), "closed");
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, v.table, 4, 1, 1.0f));
  EXPECT_EQ(h.Open(v.table, 1), 4u) << "from round 4 on rank 2 is awaited";
  h.Connect(2);
  h.Deliver(2, h.Give(2, v.table, 4, 1, 1.0f));
  EXPECT_EQ(h.Open(v.table, 1), 5u);
  EXPECT_EQ(h.seen.closed.back().divisor, 3.0);
}

TEST(ViewsTest, APullAfterANewcomersFirstRoundWaitsThoughThatIsNotOpenYet) {
  Views v(1);
  auto& h = v.h;
  h.Deliver(0, h.Contribute(0, v.table, 0, {{1, 1.0f}}, {}));
  v.Intend(1);
  v.Go(1);
  h.Connect(1);
  h.SkipAnswers();
  h.Deliver(1, h.Pull(1, v.table, {1}, 2));
  EXPECT_EQ(h.Answer(1), "") << "rank 0 is in round 0";
  h.Deliver(1, h.Pull(1, v.table, {1}, 3));
  EXPECT_TRUE(h.Answer(1).starts_with("error invalid_argument")) << "nobody can have finished round 2";
}

TEST(ViewsTest, AWorkerMayNotContributeBeforeItsFirstRoundOrItsView) {
  Views v(1);
  auto& h = v.h;
  v.Intend(1);
  h.Connect(1);
  h.SkipAnswers();
  h.Deliver(1, h.Give(1, v.table, 0, 1, 1.0f));
  EXPECT_EQ(h.Answer(1),
            "error unavailable: round 0 of table \"w\" has to wait: rank 1 is not in a view yet");
  v.Go(1);
  h.Deliver(1, h.Give(1, v.table, 0, 1, 1.0f));
  EXPECT_EQ(h.Answer(1),
            "error invalid_argument: round 0 of table \"w\" is before round 1, the first of rank 1");
  h.Deliver(1, h.Give(1, v.table, 1, 1, 1.0f));
  EXPECT_TRUE(h.Answer(1).starts_with("error unavailable"));
}

TEST(ViewsTest, RoundsThatNobodyIsLeftForCloseUpToTheNextStartAndNoFurther) {
  Views v(1);
  auto& h = v.h;
  v.PlayRound(0, {0});
  v.Intend(1);
  v.Go(5);
  EXPECT_EQ(h.Open(v.table, 1), 1u) << "rank 0 is awaited";
  h.Kill(0);
  for (uint32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(h.Open(v.table, slot), 5u);
  h.Connect(1);
  h.SkipAnswers();
  h.Deliver(1, h.Give(1, v.table, 5, 1, 2.0f));
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Stored(v.table, 1), -3.0f);
}

TEST(ViewsTest, ADeathDuringAHoldTakesEffectAtOnce) {
  Views v(2);
  auto& h = v.h;
  h.Deliver(0, h.Give(0, v.table, 0, 1, 4.0f));
  v.Intend(2);
  h.Kill(1);
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Open(v.table, 1), 1u);
  EXPECT_EQ(h.shard->hold_view(), ViewNumber{2});
}

TEST(ViewsTest, WhatIsHeldNeverFallsWhenSlotsCome) {
  Views v(2);
  auto& h = v.h;
  h.Deliver(0, h.Done(0, v.table, 0));
  v.Intend(2);
  const std::vector<wire::TableRound> held = {{v.table, Round{1}}};
  ASSERT_EQ(h.shard->hold_rounds(), held);
  h.Kill(0);  // the only one who had begun the round
  h.state.slots[4] = {0, 0, 2, h.state.version.Next(), wire::kNoServer, {}};
  h.Publish();
  EXPECT_EQ(h.shard->hold_rounds(), held);
}

TEST(ViewsTest, AHoldForAnotherViewIsReportedAnew) {
  Views v(1);
  auto& h = v.h;
  v.PlayRound(0, {0});
  v.Intend(1);
  // The shard misses the state that made view 2 and sees the next intent.
  h.state.view = ViewNumber{2};
  h.state.views.push_back({ViewNumber{2}, {{v.table, Round{1}}}});
  h.state.workers[1].join_view = ViewNumber{2};
  h.state.pending_view = ViewNumber{3};
  h.Publish();
  EXPECT_EQ(h.shard->hold_view(), ViewNumber{3});
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{v.table, Round{1}}}));
}

}  // namespace
}  // namespace cairn::server

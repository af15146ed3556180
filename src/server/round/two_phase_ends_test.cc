// Rounds in two phases that nobody comes back to, and those that a view change holds.
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;

struct Ends {
  explicit Ends(uint32_t workers) : h(workers) {
    table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
    h.SkipAnswers();
  }
  wire::FramePtr Give(uint32_t rank, uint64_t round, uint32_t slot, float value) {
    return h.Contribute(rank, table, round, {{slot, value}},
                        {.done = Slots{slot}, .flags = wire::kParamTwoPhase});
  }
  wire::FramePtr Mark(uint32_t rank, uint64_t round, uint16_t flags) {
    return h.Rows(rank, wire::FrameType::kDone, table, Round{round}, {}, {.done = Slots{}, .flags = flags});
  }
  wire::FramePtr Decide(uint32_t rank, uint64_t round) { return Mark(rank, round, wire::kParamDecide); }
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

TEST(TwoPhaseEndsTest, ARoundThatNobodyIsLeftToDecideIsSkippedWhenSomebodyStartsLater) {
  Ends e(1);
  auto& h = e.h;
  h.Deliver(0, e.Give(0, 0, 1, 2.0f));
  h.Kill(0);
  EXPECT_EQ(h.Open(e.table, 1), 0u) << "nobody needs it to close";
  e.Intend(1);
  EXPECT_EQ(h.Open(e.table, 1), 0u);
  e.Go(1);
  EXPECT_EQ(h.Open(e.table, 1), 1u);
  EXPECT_EQ(h.Stored(e.table, 1), std::nullopt);
  for (const CloseRecord& record : h.seen.closed) EXPECT_TRUE(record.skipped);
}

// Contributors and divisor are fixed: a newcomer can't take part, although nothing else is left of
// the dead worker's mark.
TEST(TwoPhaseEndsTest, ASummedUpRoundHasBegunAlsoWithoutContributions) {
  Ends e(1);
  auto& h = e.h;
  h.Deliver(0, e.Mark(0, 0, wire::kParamTwoPhase));
  h.Kill(0);
  e.Intend(1);
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{e.table, Round{1}}}));
}

TEST(TwoPhaseEndsTest, AJoinedWorkerIsNotLeftWaitingForTheDead) {
  Ends e(2);
  auto& h = e.h;
  h.Deliver(0, e.Mark(0, 0, wire::kParamJoined));
  h.Deliver(1, e.Give(1, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(1), "report 1=4");
  h.Kill(1);
  EXPECT_EQ(h.Answer(0), "all joined, closed");
  EXPECT_TRUE(h.seen.closed[1].skipped);
  EXPECT_EQ(h.Stored(e.table, 1), std::nullopt);
}

// A dead worker's contribution to one slot had another lr: that slot closes with an error, which
// all see; the others are summed up, and nobody will decide there.
TEST(TwoPhaseEndsTest, TheNextRoundOfAWorkerGivesUpWhatItDidNotDecide) {
  Ends e(3);
  auto& h = e.h;
  h.Deliver(2, h.Contribute(2, e.table, 0, {{1, 2.0f}}, {.lr = 0.5f, .flags = wire::kParamTwoPhase}));
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, e.Give(rank, 0, 2, 2.0f));
  h.Kill(2);
  for (uint32_t rank : {0u, 1u}) EXPECT_TRUE(h.Answer(rank).starts_with("1:hyper_mismatch@0 "));
  EXPECT_EQ(h.Open(e.table, 1), 1u);
  EXPECT_EQ(h.Open(e.table, 2), 0u);
  wire::FramePtr next = e.Give(0, 1, 2, 4.0f);
  h.Deliver(0, next);
  EXPECT_TRUE(h.Answer(0).starts_with("error unavailable: round 1")) << "rank 1 may still decide";
  h.Deliver(1, e.Give(1, 1, 2, 4.0f));
  EXPECT_EQ(h.Open(e.table, 2), 1u);
  EXPECT_EQ(h.Stored(e.table, 2), std::nullopt) << "given up";
  h.Deliver(0, next);
  EXPECT_EQ(h.Answer(0), "report 2=16");
}

TEST(TwoPhaseEndsTest, AHeldRoundIsNotSummedUpAndOneThatWasReportedIs) {
  Ends e(2);
  auto& h = e.h;
  h.Deliver(0, e.Give(0, 0, 1, 2.0f));
  e.Intend(2);
  h.Deliver(1, e.Give(1, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "report 1=4") << "round 0 was reported as open: it goes on";
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, e.Decide(rank, 0));
  EXPECT_EQ(h.Open(e.table, 1), 1u);
  h.SkipAnswers();
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, e.Give(rank, 1, 1, 3.0f));
  EXPECT_EQ(h.Answer(0), "") << "rank 2 may take part in round 1";
  e.Go(1);
  EXPECT_EQ(h.Answer(0), "");
  h.Connect(2);
  h.SkipAnswers();
  h.Deliver(2, e.Give(2, 1, 1, 6.0f));
  for (uint32_t rank : {0u, 1u, 2u}) EXPECT_EQ(h.Answer(rank), "report 1=16");
}

TEST(TwoPhaseEndsTest, AHeldRoundIsSummedUpOnceTheViewIsThere) {
  Ends e(1);
  auto& h = e.h;
  h.Deliver(0, h.Done(0, e.table, 0));
  e.Intend(1);
  h.SkipAnswers();
  h.Deliver(0, e.Give(0, 1, 1, 3.0f));
  EXPECT_EQ(h.Answer(0), "");
  e.Go(2);  // another server had reported round 1
  EXPECT_EQ(h.Answer(0), "report 1=9");
  h.Deliver(0, e.Decide(0, 1));
  EXPECT_EQ(h.Answer(0), "closed") << "rank 1 starts with round 2 and does not decide here";
}

}  // namespace
}  // namespace cairn::server

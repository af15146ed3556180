// Rounds where two things come together: the dead and the joined, steps and decisions, sums and weights,
// slots that came in another order, holds after holds.
#include "server/shard/dense_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;
using Options = ShardHarness::RoundOptions;

struct Details {
  explicit Details(uint32_t workers, TableSpec spec = ShardHarness::Sparse(Mode::kSync)) : h(workers) {
    table = h.AddTable(std::move(spec));
    h.SkipAnswers();
  }
  wire::FramePtr Mark(uint32_t rank, uint64_t round, uint16_t flags, uint64_t step = 0) {
    return h.Rows(rank, wire::FrameType::kDone, table, Round{round}, {},
                  {.done = Slots{}, .flags = flags, .step = step});
  }
  wire::FramePtr First(uint32_t rank, uint64_t round, uint32_t slot, float value) {
    return h.Contribute(rank, table, round, {{slot, value}},
                        {.done = Slots{slot}, .flags = wire::kParamTwoPhase});
  }
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

TEST(RoundDetails, AllJoinedIsSaidWithAnErrorToo) {
  Details d(3);
  auto& h = d.h;
  h.Deliver(1, h.Contribute(1, d.table, 0, {{1, 1.0f}}, {.lr = 1}));
  h.Deliver(2, h.Contribute(2, d.table, 0, {{1, 1.0f}}, {.lr = 2}));
  h.Deliver(0, d.Mark(0, 0, wire::kParamJoined));
  h.Kill(1);
  h.Kill(2);
  const std::string answer = h.Answer(0);
  EXPECT_TRUE(answer.starts_with("all joined, 1:hyper_mismatch@0 round 0")) << answer;
}

TEST(RoundDetails, ANewcomerWhoStartsLaterNeedNotHaveJoined) {
  Details d(1);
  auto& h = d.h;
  d.Intend(1);
  d.Go(1);
  h.Deliver(0, d.Mark(0, 0, wire::kParamJoined));
  EXPECT_EQ(h.Answer(0), "all joined, closed");
}

TEST(RoundDetails, AGradientThatWasNotFiniteIsReportedThoughItsWorkerIsDead) {
  Details d(2);
  auto& h = d.h;
  h.Deliver(
      1, h.Contribute(1, d.table, 0, {{1, 2.0f}}, {.flags = wire::kParamTwoPhase | wire::kParamNotFinite}));
  h.Deliver(0, d.First(0, 0, 1, 2.0f));
  h.Kill(1);
  EXPECT_EQ(h.Answer(0), "report 1=4!");
}

TEST(RoundDetails, WhoHasJoinedHasNoGradientThatCouldBeWrong) {
  Details d(2);
  auto& h = d.h;
  h.Deliver(1, d.Mark(1, 0, wire::kParamJoined | wire::kParamTwoPhase | wire::kParamNotFinite));
  h.Deliver(0, d.First(0, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "report 1=4");
}

TEST(RoundDetails, ATableOfSumsReportsTheSquareOfTheSum) {
  Details d(2, ShardHarness::Sparse(Mode::kSync, OptimizerKind::kSum));
  auto& h = d.h;
  h.Deliver(0, d.First(0, 0, 1, 2.0f));
  h.Deliver(1, d.First(1, 0, 1, 4.0f));
  EXPECT_EQ(h.Answer(0), "report 1=36");
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, d.Mark(rank, 0, wire::kParamDecide));
  EXPECT_EQ(h.Stored(d.table, 1), 6.0f);
}

TEST(RoundDetails, WeightsOfZeroApplyNothingWhereTheSumIsWantedEither) {
  TableSpec spec = ShardHarness::Sparse(Mode::kSync);
  spec.optimizer_flags = kReduceSum;
  Details d(2, spec);
  auto& h = d.h;
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, d.table, 0, 1, 4.0f, 0.0));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(d.table, 1), std::nullopt);
  EXPECT_EQ(h.seen.closed[1].divisor, 0.0);
}

TEST(RoundDetails, TheStepOfADecisionIsThatOfThoseWhoCount) {
  Details d(2, ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  auto& h = d.h;
  const auto steps = [&](uint64_t round, uint64_t first, uint64_t second) {
    for (uint32_t rank : {0u, 1u}) h.Deliver(rank, d.First(rank, round, 1, 1.0f));
    h.SkipAnswers();
    h.Deliver(0, d.Mark(0, round, wire::kParamDecide, first));
    h.Deliver(1, d.Mark(1, round, wire::kParamDecide, second));
    return h.Answer(0);
  };
  const auto step_of_slot = [&] {
    h.SkipAnswers();
    h.Deliver(0, h.Pull(0, d.table, {1}, {}, kStepColumn));
    return h.Answer(0);
  };
  EXPECT_EQ(steps(0, 0, 5), "closed");
  EXPECT_EQ(step_of_slot(), "values 5") << "rank 0 says nothing of it";
  const std::string differ = steps(1, 6, 7);
  EXPECT_NE(differ.find("rank 0 is in step 6, rank 1 is in step 7: all workers count the same steps"),
            std::string::npos)
      << differ;
  EXPECT_EQ(step_of_slot(), "values 5");
}

TEST(RoundDetails, WhoStartsLaterKeepsNobodyWaitingForItsTurn) {
  TableSpec spec = ShardHarness::Sparse(Mode::kSync, OptimizerKind::kSum);
  spec.deterministic = true;
  Details d(2, spec);
  auto& h = d.h;
  h.Kill(0);
  d.Intend(0);  // rank 0 again, from round 1 on
  d.Go(1);
  h.Deliver(1, h.Contribute(1, d.table, 0, {{1, 2.0f}}, {}));
  EXPECT_EQ(h.shard->early_bytes(), 0u) << "it is added at once";
}

TEST(RoundDetails, AHoldForAnotherViewReportsWhatHasBegunMeanwhile) {
  Details d(1);
  auto& h = d.h;
  d.Intend(1);
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{d.table, Round{0}}}));
  h.Deliver(0, h.Done(0, d.table, 0));  // held
  // The shard misses the state that made view 2 and sees the next intent.
  h.state.view = ViewNumber{2};
  h.state.views.push_back({ViewNumber{2}, {{d.table, Round{0}}}});
  h.state.workers[1].join_view = ViewNumber{2};
  h.state.pending_view = ViewNumber{3};
  h.Publish();
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{d.table, Round{1}}}));
}

TEST(RoundDetails, WhatSlotsBehindHaveBegunDoesNotCountForTheHighestRound) {
  Details d(2);
  auto& h = d.h;
  h.Deliver(1, h.Contribute(1, d.table, 0, {{2, 1.0f}}, {.done = Slots{2}}));
  h.Deliver(0, h.Contribute(0, d.table, 0, {{1, 1.0f}}, {.done = Slots{1, 2}}));
  ASSERT_EQ(h.Open(d.table, 1), 1u);
  ASSERT_EQ(h.Open(d.table, 2), 0u);
  d.Intend(2);
  EXPECT_EQ(h.shard->hold_rounds(), (std::vector<wire::TableRound>{{d.table, Round{1}}}));
}

TEST(RoundDetails, AStateThatComesBeforeTheRegistrationIsHeldForToo) {
  Details d(1);
  auto& h = d.h;
  h.state.pending_view = h.state.view.Next();
  h.state.version = h.state.version.Next();
  auto shard = Shard::Make({}, h.net, h.pool);
  shard->OnState(std::make_shared<wire::ClusterState>(h.state), 0);
  EXPECT_TRUE(shard->hold_rounds().empty()) << "it does not know which slots it has";
  shard->OnRegistered(0, ShardHarness::kServer);
  EXPECT_EQ(shard->hold_view(), h.state.pending_view);
  EXPECT_EQ(shard->hold_rounds(), (std::vector<wire::TableRound>{{d.table, Round{0}}}));
}

// Slot 0 comes last, behind the others in all that the shard keeps by slot.
struct LateSlot : Details {
  LateSlot() : Details(2) {
    h.state.slots[0].thread = 1;
    shard = Shard::Make({}, h.net, h.pool, &h.seen);
    shard.swap(h.shard);
    h.shard->OnRegistered(0, ShardHarness::kServer);
    h.Publish();
    h.state.slots[0] = {0, 0, 2, h.state.version.Next(), wire::kNoServer, {}};
    h.Publish();
    for (uint32_t rank : {0u, 1u}) h.Connect(rank);
    h.SkipAnswers();
  }
  std::unique_ptr<Shard> shard;  // the first one
};

TEST(RoundDetails, ProblemsAreInTheOrderOfSlots) {
  LateSlot late;
  auto& h = late.h;
  h.Deliver(0, h.Give(0, late.table, 0, 1, 1.0f, 1.0, 0.1f));
  h.Deliver(1, h.Give(1, late.table, 0, 1, 1.0f, 1.0, 0.2f));
  const auto frame = h.Next(0);
  const std::string answer = ShardHarness::Describe(frame);
  EXPECT_TRUE(answer.starts_with("0:hyper_mismatch@0 1:hyper_mismatch@0 2:hyper_mismatch@0 3:")) << answer;
  EXPECT_EQ(frame->header.state_version, h.state.version.value) << "clients go by it";
}

TEST(RoundDetails, ReportsAreInTheOrderOfSlots) {
  LateSlot late;
  auto& h = late.h;
  for (uint32_t rank : {0u, 1u}) {
    h.Deliver(rank, h.Contribute(rank, late.table, 0, {{0, 2.0f}, {1, 4.0f}},
                                 {.done = Slots{0, 1}, .flags = wire::kParamTwoPhase}));
  }
  EXPECT_EQ(h.Answer(0), "report 0=4 1=16");
}

}  // namespace
}  // namespace cairn::server

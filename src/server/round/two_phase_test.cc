// Rounds in two phases: what is summed up and reported, who decides, and what a death changes.
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;

struct TwoPhase {
  explicit TwoPhase(uint32_t workers, TableSpec spec = ShardHarness::Sparse(Mode::kSync)) : h(workers) {
    table = h.AddTable(std::move(spec));
    h.SkipAnswers();
  }
  // The first phase: a part with the mark that names its slot, or a mark alone.
  wire::FramePtr Give(uint32_t rank, uint64_t round, uint32_t slot, float value,
                      ShardHarness::RoundOptions options = {}) {
    options.done = Slots{slot};
    options.flags |= wire::kParamTwoPhase;
    return h.Contribute(rank, table, round, {{slot, value}}, options);
  }
  wire::FramePtr Mark(uint32_t rank, uint64_t round, uint16_t flags = wire::kParamTwoPhase,
                      double weight = 1) {
    return h.Rows(rank, wire::FrameType::kDone, table, Round{round}, {},
                  {.done = Slots{}, .weight = weight, .flags = flags});
  }
  // The second. It pulls slot 1.
  wire::FramePtr Decide(uint32_t rank, uint64_t round, double scale, float lr = 1, uint16_t flags = 0) {
    return h.Rows(rank, wire::FrameType::kDone, table, Round{round}, {{1}},
                  {.done = Slots{},
                   .lr = lr,
                   .pull_after = true,
                   .flags = static_cast<uint16_t>(wire::kParamDecide | flags),
                   .scale = scale});
  }
  wire::FramePtr Skip(uint32_t rank, uint64_t round) { return Decide(rank, round, 1, 1, wire::kParamSkip); }
  ShardHarness h;
  TableId table;
};

TEST(TwoPhaseTest, TheMeanIsReportedAndAppliedOnceWithTheScaleThatAllDecide) {
  TwoPhase t(2);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "");
  h.Deliver(1, t.Give(1, 0, 1, 4.0f));
  EXPECT_EQ(h.Answer(0), "report 1=9") << "the square of the mean";
  EXPECT_EQ(h.Answer(1), "report 1=9");
  EXPECT_EQ(h.Open(t.table, 1), 0u);
  EXPECT_EQ(h.Stored(t.table, 1), std::nullopt);
  ASSERT_EQ(h.seen.summed.size(), 4u);
  EXPECT_EQ(h.seen.summed[1].divisor, 2.0);
  EXPECT_EQ(h.seen.summed[1].contributors.size(), 2u);

  h.Deliver(0, t.Decide(0, 0, 0.5, 2.0f));
  EXPECT_EQ(h.Answer(0), "");
  EXPECT_EQ(h.Open(t.table, 1), 0u) << "rank 1 has not decided";
  h.Deliver(1, t.Decide(1, 0, 0.5, 2.0f));
  EXPECT_EQ(h.Answer(0), "values -3");
  EXPECT_EQ(h.Answer(1), "values -3") << "lr 2 x scale 0.5 x mean 3";
  for (uint32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(h.Open(t.table, slot), 1u);
  ASSERT_EQ(h.seen.closed.size(), 4u);
  const CloseRecord& record = h.seen.closed[1];
  EXPECT_TRUE(record.two_phase);
  EXPECT_FALSE(record.skipped);
  EXPECT_EQ(record.scale, 0.5);
  EXPECT_EQ(record.hyper.lr, 2.0);
  EXPECT_EQ(record.report.sum_squares, 9.0);
  EXPECT_EQ(record.divisor, 2.0);
  EXPECT_EQ(record.contributors.size(), 2u);
}

TEST(TwoPhaseTest, OneReportForEverySlotThatHasASum) {
  TwoPhase t(2);
  auto& h = t.h;
  wire::FramePtr part = h.Contribute(0, t.table, 0, {{2, 6.0f}}, {.flags = wire::kParamTwoPhase});
  h.Deliver(0, part);
  h.Deliver(0,
            h.Contribute(0, t.table, 0, {{0, 2.0f}}, {.done = Slots{0, 2}, .flags = wire::kParamTwoPhase}));
  h.Deliver(1, t.Mark(1, 0));
  EXPECT_EQ(h.Answer(0), "report") << "a part without a mark is told no more than that it was summed up";
  EXPECT_EQ(h.Answer(0), "report 0=1 2=9");
  EXPECT_EQ(h.Answer(1), "report 0=1 2=9");
  h.Deliver(0, part);
  EXPECT_EQ(h.Answer(0), "report");
}

TEST(TwoPhaseTest, ADeathBetweenReportAndDecisionChangesNothing) {
  TwoPhase t(3);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, 3.0f, {.weight = 2}));
  h.Deliver(1, t.Give(1, 0, 1, 6.0f));
  h.Deliver(2, t.Mark(2, 0));  // no gradient here: its weight alone is in the divisor
  for (uint32_t rank : {0u, 1u, 2u}) EXPECT_EQ(h.Answer(rank), "report 1=9") << "(2*3 + 6) / 4";
  h.Kill(0);
  h.Kill(2);
  EXPECT_EQ(h.Open(t.table, 1), 0u);
  h.Deliver(1, t.Decide(1, 0, 1.0));
  EXPECT_EQ(h.Answer(1), "values -3");
  EXPECT_EQ(h.seen.closed[1].divisor, 4.0);
  EXPECT_EQ(h.seen.closed[1].contributors.size(), 3u);
  EXPECT_EQ(h.seen.closed[0].divisor, 4.0) << "also where the dead had nothing but a mark";
}

TEST(TwoPhaseTest, ADeathLetsThoseCloseWhoHaveDecided) {
  TwoPhase t(2);
  auto& h = t.h;
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Give(rank, 0, 1, 2.0f));
  h.Deliver(0, t.Decide(0, 0, 0.5));
  h.SkipAnswers();
  h.Kill(1);
  EXPECT_EQ(h.Answer(0), "values -1");
}

TEST(TwoPhaseTest, ASkippedRoundAppliesNothingAndLeavesNothingBehind) {
  TwoPhase t(2);
  auto& h = t.h;
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Give(rank, 0, 1, 2.0f));
  h.SkipAnswers();
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Skip(rank, 0));
  EXPECT_EQ(h.Answer(0), "values 0");
  EXPECT_EQ(h.Stored(t.table, 1), std::nullopt);
  EXPECT_TRUE(h.seen.closed[1].skipped);
  EXPECT_EQ(h.seen.closed[1].outcome, Code::kOk);
  // The next round has one phase and only its own gradient.
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, t.table, 1, 1, 1.0f));
  EXPECT_EQ(h.Stored(t.table, 1), -1.0f);
  EXPECT_FALSE(h.seen.closed.back().two_phase);
}

TEST(TwoPhaseTest, DecisionsThatDifferApplyNothingAndNameTheRanks) {
  struct {
    double scale;
    float lr;
    uint16_t flags;
    std::string text;
  } cases[] = {
      {1, 1, wire::kParamSkip, "rank 1 skips it, rank 0 applies it: decide the same on all workers"},
      {0.25, 1, 0,
       "rank 0 scales its gradient by 0.5, rank 1 scales its gradient by 0.25: decide the same on all "
       "workers"},
      {0.5, 2, 0, "rank 0 has lr 1, rank 1 has lr 2: give all workers the same"},
  };
  for (const auto& other : cases) {
    TwoPhase t(2);
    auto& h = t.h;
    for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Give(rank, 0, 1, 2.0f));
    h.SkipAnswers();
    h.Deliver(0, t.Decide(0, 0, 0.5));
    h.Deliver(1, t.Decide(1, 0, other.scale, other.lr, other.flags));
    for (uint32_t rank : {0u, 1u}) {
      const std::string answer = h.Answer(rank);
      EXPECT_TRUE(answer.starts_with("0:hyper_mismatch@0 1:hyper_mismatch@0")) << answer;
      EXPECT_TRUE(answer.ends_with("round 0 of table \"w\": " + other.text)) << answer;
    }
    EXPECT_EQ(h.Stored(t.table, 1), std::nullopt);
    EXPECT_EQ(h.seen.closed[1].outcome, Code::kHyperMismatch);
  }
}

TEST(TwoPhaseTest, WorkersThatDisagreeAboutThePhasesCloseTheRoundAtOnce) {
  TwoPhase t(2);
  auto& h = t.h;
  wire::FramePtr first = t.Give(1, 0, 1, 2.0f);
  h.Deliver(0, h.Give(0, t.table, 0, 1, 2.0f));
  h.Deliver(1, first);
  const std::string text =
      "round 0 of table \"w\": rank 1 clips or uses a gradient scaler in this round, rank 0 does not: do the "
      "same on all workers";
  EXPECT_TRUE(h.Answer(0).ends_with(text));
  EXPECT_TRUE(h.Answer(1).ends_with(text));
  EXPECT_EQ(h.Open(t.table, 1), 1u);
  EXPECT_EQ(h.Stored(t.table, 1), std::nullopt);
  EXPECT_TRUE(h.seen.summed.empty());
  h.Deliver(1, first);
  EXPECT_TRUE(h.Answer(1).ends_with(text)) << "a copy gets the outcome";
}

TEST(TwoPhaseTest, CopiesOfAFirstPhaseFrameGetTheReportAndAfterTheCloseTheOutcome) {
  TwoPhase t(2);
  auto& h = t.h;
  wire::FramePtr frames[2] = {t.Give(0, 0, 1, 2.0f), t.Give(1, 0, 1, 4.0f)};
  h.Deliver(0, frames[0]);
  h.Deliver(0, frames[0]);
  h.Deliver(1, frames[1]);
  EXPECT_EQ(h.Answer(0), "report 1=9");
  EXPECT_EQ(h.Answer(0), "") << "one request, one answer";
  h.Kill(1);
  h.Deliver(0, frames[0]);
  EXPECT_EQ(h.Answer(0), "report 1=9") << "the same, whoever has died since";
  EXPECT_EQ(h.seen.staged.size(), 2u);
  wire::FramePtr decide = t.Decide(0, 0, 1);
  h.Deliver(0, decide);
  EXPECT_EQ(h.Answer(0), "values -3");
  h.Deliver(0, frames[0]);
  EXPECT_EQ(h.Answer(0), "report") << "closed well, nothing to report";
  h.Deliver(0, decide);
  EXPECT_EQ(h.Answer(0), "values -3");
  EXPECT_EQ(h.seen.closed.size(), 4u);
}

TEST(TwoPhaseTest, ADecisionThatComesBeforeTheSumIsKept) {
  TwoPhase t(2);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, 2.0f));
  h.Deliver(0, t.Decide(0, 0, 1));
  EXPECT_EQ(h.Open(t.table, 1), 0u);
  h.Deliver(1, t.Give(1, 0, 1, 4.0f));
  EXPECT_EQ(h.Answer(0), "report 1=9");
  EXPECT_EQ(h.Open(t.table, 1), 0u) << "rank 1 has to see the report first";
  h.Deliver(1, t.Decide(1, 0, 1));
  EXPECT_EQ(h.Answer(0), "values -3");
}

TEST(TwoPhaseTest, ARefusedPartIsToldAtTheCloseNotAtTheReport) {
  TwoPhase t(2);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, std::numeric_limits<float>::quiet_NaN()));
  h.Deliver(1, t.Give(1, 0, 1, 4.0f));
  EXPECT_EQ(h.Answer(0), "report 1=16") << "over the one that counts";
  EXPECT_EQ(h.Answer(1), "report 1=16");
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Decide(rank, 0, 1));
  EXPECT_TRUE(h.Answer(0).starts_with("1:not_finite@0"));
  EXPECT_EQ(h.Answer(1), "values -4");
}

TEST(TwoPhaseTest, AWorkerWhoseGradientIsNotFiniteTellsEverybody) {
  TwoPhase t(2);
  auto& h = t.h;
  h.Deliver(0, t.Mark(0, 0, wire::kParamTwoPhase | wire::kParamNotFinite));
  h.Deliver(1, t.Give(1, 0, 1, 4.0f));
  for (uint32_t rank : {0u, 1u})
    EXPECT_EQ(h.Answer(rank), "report 0=0! 1=4! 2=0! 3=0!") << "also where there is no sum";
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Skip(rank, 0));
  EXPECT_EQ(h.Answer(0), "values 0");
}

TEST(TwoPhaseTest, ASumThatIsNotFiniteIsReported) {
  TableSpec spec = ShardHarness::Sparse(Mode::kSync);
  spec.non_finite = NonFinitePolicy::kAllow;
  TwoPhase t(1, spec);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(h.Answer(0).ends_with("!"));
}

TEST(TwoPhaseTest, ValuesAreScaledAsTheyAreSummed) {
  TwoPhase t(2);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, 64.0f, {.weight = 3, .value_scale = 1.0 / 32}));
  h.Deliver(1, t.Give(1, 0, 1, 96.0f, {.weight = 1, .value_scale = 1.0 / 16}));
  EXPECT_EQ(h.Answer(0), "report 1=9") << "(3*2 + 6) / 4";
}

TEST(TwoPhaseTest, TablesThatWantTheSumReportAndApplyTheSum) {
  TableSpec spec = ShardHarness::Sparse(Mode::kSync);
  spec.optimizer_flags = kReduceSum;
  TwoPhase t(2, spec);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, 1.0f, {.weight = 2}));
  h.Deliver(1, t.Give(1, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "report 1=16") << "2*1 + 2";
  h.SkipAnswers();
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, t.Decide(rank, 0, 0.5));
  EXPECT_EQ(h.Answer(0), "values -2");
  EXPECT_EQ(h.seen.closed[1].divisor, 1.0);
  // And in one phase.
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, t.table, 1, 1, 1.0f));
  EXPECT_EQ(h.Stored(t.table, 1), -4.0f);
}

TEST(TwoPhaseTest, DeterministicTablesSumInTheOrderOfRanksBeforeTheyReport) {
  TableSpec spec = ShardHarness::Sparse(Mode::kSync);
  spec.deterministic = true;
  TwoPhase t(3, spec);
  auto& h = t.h;
  const float values[3] = {1e8f, 1.0f, -1e8f};  // in this order the 1 is lost
  for (uint32_t rank : {2u, 0u, 1u}) h.Deliver(rank, t.Give(rank, 0, 1, values[rank]));
  EXPECT_EQ(h.Answer(0), "report 1=0");
  EXPECT_EQ(h.shard->early_bytes(), 0u);
  h.SkipAnswers();
  for (uint32_t rank : {0u, 1u, 2u}) h.Deliver(rank, t.Decide(rank, 0, 1));
  EXPECT_EQ(h.Stored(t.table, 1), 0.0f);
}

TEST(TwoPhaseTest, ThoseWhoWaitAreToldWhoHasNotContributedAndThenWhoHasNotDecided) {
  TwoPhase t(3);
  auto& h = t.h;
  auto tick = [&] {
    h.now += 3'000'000;
    h.shard->OnTick(h.now);
  };
  h.Deliver(0, t.Give(0, 0, 1, 2.0f));
  tick();
  EXPECT_EQ(h.Answer(0), "waiting in round 0 for 1 2");
  for (uint32_t rank : {1u, 2u}) h.Deliver(rank, t.Mark(rank, 0));
  h.Deliver(0, t.Decide(0, 0, 1));
  h.SkipAnswers();
  tick();
  EXPECT_EQ(h.Answer(0), "waiting in round 0 for 1 2");
  h.Deliver(1, t.Decide(1, 0, 1));
  tick();
  EXPECT_EQ(h.Answer(0), "waiting in round 0 for 2");
}

TEST(TwoPhaseTest, APartAfterTheSumIsRefused) {
  TwoPhase t(1);
  auto& h = t.h;
  h.Deliver(0, t.Give(0, 0, 1, 2.0f));
  h.SkipAnswers();
  h.Deliver(0, h.Contribute(0, t.table, 0, {{2, 5.0f}}, {.flags = wire::kParamTwoPhase}));
  EXPECT_EQ(h.Answer(0),
            "error invalid_argument: round 0 of table \"w\" is summed up in slot 2: the done mark of rank 0 "
            "has to name this slot");
  h.Deliver(0, t.Decide(0, 0, 1));
  EXPECT_EQ(h.Answer(0), "values -2");
  EXPECT_EQ(h.Stored(t.table, 2), std::nullopt);
}

}  // namespace
}  // namespace cairn::server

// Sync rounds: what is staged, when a round closes, with which divisor, and who is told.
#include <limits>

#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Rounds {
  explicit Rounds(uint32_t workers, OptimizerKind optimizer = OptimizerKind::kSgd) : h(workers) {
    table = h.AddTable(ShardHarness::Sparse(Mode::kSync, optimizer));
    h.SkipAnswers();
  }
  ShardHarness h;
  TableId table;
};

TEST(RoundsTest, ARoundAppliesOnceAsTheMeanWhenAllAreDone) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "");
  EXPECT_EQ(h.Stored(r.table, 1), std::nullopt);
  h.Deliver(1, h.Give(1, r.table, 0, 1, 4.0f));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -3.0f);
  for (uint32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(h.Open(r.table, slot), 1u);
  ASSERT_EQ(h.seen.closed.size(), 4u);
  EXPECT_EQ(h.seen.closed[1].divisor, 2.0);
  EXPECT_EQ(h.seen.closed[1].position, Position::Of(1, 1));
  EXPECT_EQ(h.seen.closed[1].contributors.size(), 2u);
  EXPECT_EQ(h.shard->stats().rounds, 1u);
}

TEST(RoundsTest, FourWorkersGoThroughManyRounds) {
  Rounds r(4, OptimizerKind::kSum);
  auto& h = r.h;
  for (uint64_t round = 0; round < 20; ++round) {
    for (uint32_t rank : {2u, 0u, 3u, 1u}) h.Deliver(rank, h.Give(rank, r.table, round, rank, 1.0f));
    for (uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(h.Answer(rank), "closed");
  }
  for (uint32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(h.Stored(r.table, slot), 20.0f);
}

TEST(RoundsTest, TheDivisorCountsWorkersWithoutAGradientHere) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 4.0f));
  h.Deliver(1, h.Done(1, r.table, 0));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -2.0f);
  EXPECT_FALSE(h.seen.closed[1].contributors[1].gradient);
}

TEST(RoundsTest, WeightsMakeUnequalBatchesExact) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 4.0f, 3.0));
  h.Deliver(1, h.Give(1, r.table, 0, 1, 8.0f, 1.0));
  EXPECT_EQ(h.Stored(r.table, 1), -5.0f);
}

TEST(RoundsTest, WeightsOfZeroApplyNothing) {
  Rounds r(2);
  auto& h = r.h;
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, r.table, 0, 1, 4.0f, 0.0));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), std::nullopt);
  // And nothing of it is left for the next round.
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, h.Give(rank, r.table, 1, 1, 1.0f));
  EXPECT_EQ(h.Stored(r.table, 1), -1.0f);
}

TEST(RoundsTest, AMarkCountsForASlotOnlyWithTheContributionThatItNames) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(1, h.Done(1, r.table, 0));
  // The mark comes first and names slots 1 and 2; the part for slot 2 is in another frame.
  wire::FramePtr first = h.Contribute(0, r.table, 0, {{1, 2.0f}}, {.done = std::vector<uint32_t>{1, 2}});
  wire::FramePtr second = h.Contribute(0, r.table, 0, {{2, 6.0f}}, {});
  h.Deliver(0, first);
  EXPECT_EQ(h.Open(r.table, 1), 1u);
  EXPECT_EQ(h.Open(r.table, 2), 0u);
  EXPECT_EQ(h.Answer(0), "") << "its mark is not accepted in every slot yet";
  h.Deliver(0, second);
  EXPECT_EQ(h.Open(r.table, 2), 1u);
  EXPECT_EQ(h.Stored(r.table, 2), -3.0f);
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(1), "closed");
}

TEST(RoundsTest, AContributionSentAgainIsStagedOnceAndAnsweredWhereItCameLast) {
  Rounds r(2);
  auto& h = r.h;
  wire::FramePtr give = h.Give(0, r.table, 0, 1, 2.0f);
  h.Deliver(0, give);
  h.Deliver(0, give);
  const ConnId old = h.conns[0];
  h.shard->OnDisconnect(old, 0);
  h.Connect(0);
  h.SkipAnswers();
  h.Deliver(0, give);
  EXPECT_EQ(h.seen.staged.size(), 1u);
  h.Deliver(1, h.Give(1, r.table, 0, 1, 2.0f));
  EXPECT_EQ(ShardHarness::Describe(h.NextOn(old)), "");
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(0), "");
  EXPECT_EQ(h.Stored(r.table, 1), -2.0f);
  // After the close a copy is answered at once and changes nothing.
  h.Deliver(0, give);
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -2.0f);
  EXPECT_EQ(h.seen.closed.size(), 4u);
}

TEST(RoundsTest, ALostConnectionKeepsWhatIsStaged) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 2.0f));
  h.shard->OnDisconnect(h.conns[0], 0);
  h.Deliver(1, h.Give(1, r.table, 0, 1, 4.0f));
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -3.0f);
}

TEST(RoundsTest, ARefusedPartCountsAsDoneWithWeightZeroAndEveryCopyIsToldWhy) {
  Rounds r(2);
  auto& h = r.h;
  wire::FramePtr bad =
      h.Contribute(0, r.table, 0, {{0, 2.0f}, {1, kNan}}, {.done = std::vector<uint32_t>{0, 1}});
  h.Deliver(0, bad);
  EXPECT_EQ(h.Answer(0), "");
  h.Deliver(1, h.Give(1, r.table, 0, 1, 4.0f));
  const std::string why = h.Answer(0);
  EXPECT_TRUE(why.starts_with("1:not_finite@0 table \"w\"")) << why;
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -4.0f) << "the mean over the one that counts";
  EXPECT_EQ(h.Stored(r.table, 0), -1.0f) << "the other slot has both";
  h.Deliver(0, bad);
  EXPECT_EQ(h.Answer(0), why);
  EXPECT_TRUE(h.seen.closed[1].contributors[0].refused);
  EXPECT_EQ(h.seen.closed[1].contributors[0].weight, 0.0);
}

TEST(RoundsTest, DifferentHyperParametersCloseTheRoundWithoutApplyingAndNameTheRanks) {
  Rounds r(3);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 1.0f, 1.0, 0.1f));
  h.Deliver(1, h.Done(1, r.table, 0, 1.0, 0.1f));
  h.Deliver(2, h.Give(2, r.table, 0, 1, 1.0f, 1.0, 0.01f));
  const std::string text =
      "round 0 of table \"w\": rank 0 has lr 0.1, rank 2 has lr 0.01: give all workers the same";
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const std::string answer = h.Answer(rank);
    EXPECT_TRUE(answer.starts_with("0:hyper_mismatch@0 1:hyper_mismatch@0")) << answer;
    EXPECT_TRUE(answer.ends_with(text)) << answer;
  }
  EXPECT_EQ(h.Stored(r.table, 1), std::nullopt);
  EXPECT_EQ(h.seen.closed[1].outcome, Code::kHyperMismatch);
  // The next round is clean.
  for (uint32_t rank = 0; rank < 3; ++rank) h.Deliver(rank, h.Give(rank, r.table, 1, 1, 1.0f));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -1.0f);
}

TEST(RoundsTest, AWeightThatOnlySomeWorkersGiveClosesTheRoundWithoutApplying) {
  Rounds r(3);
  auto& h = r.h;
  using Given = decltype(r.h)::RoundOptions;
  const Given given{.done = std::vector<uint32_t>{1}, .weight = 9, .flags = wire::kParamWeighted};
  const Given joined{.done = std::vector<uint32_t>{}, .weight = 0, .flags = wire::kParamJoined};
  h.Deliver(0, h.Give(0, r.table, 0, 1, 1.0f));
  h.Deliver(1, h.Contribute(1, r.table, 0, {{1, 1.0f}}, given));
  h.Deliver(2, h.Rows(2, wire::FrameType::kDone, r.table, Round{0}, {}, joined));
  const std::string text =
      "round 0 of table \"w\": rank 1 gives samples= in this round, rank 0 does not: give "
      "the number of samples on every worker, or on none";
  for (uint32_t rank : {0u, 1u}) {
    const std::string answer = h.Answer(rank);
    EXPECT_TRUE(answer.starts_with("0:hyper_mismatch@0 1:hyper_mismatch@0")) << answer;
    EXPECT_TRUE(answer.ends_with(text)) << answer;
  }
  EXPECT_EQ(h.Stored(r.table, 1), std::nullopt);
  h.SkipAnswers();
  // Where all give one it counts, and who has joined agrees.
  Given three = given, one = given;
  three.weight = 3, one.weight = 1;
  h.Deliver(0, h.Contribute(0, r.table, 1, {{1, 4.0f}}, three));
  h.Deliver(1, h.Contribute(1, r.table, 1, {{1, 8.0f}}, one));
  h.Deliver(2, h.Rows(2, wire::FrameType::kDone, r.table, Round{1}, {}, joined));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(r.table, 1), -5.0f);
}

TEST(RoundsTest, ADeadWorkerIsNotAwaitedAndItsCompleteContributionCounts) {
  Rounds r(3);
  auto& h = r.h;
  h.Deliver(0, h.Contribute(0, r.table, 0, {{1, 3.0f}}, {.weight = 2}));  // complete, but no mark yet
  h.Deliver(1, h.Give(1, r.table, 0, 1, 6.0f));
  h.Deliver(2, h.Done(2, r.table, 0));
  EXPECT_EQ(h.Answer(1), "");
  h.Kill(0);
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Answer(2), "closed");
  EXPECT_EQ(h.Answer(0), "") << "answers to the dead are forgotten";
  EXPECT_EQ(h.Stored(r.table, 1), -3.0f) << "(2*3 + 6) / (2 + 1 + 1)";
  const CloseRecord& record = h.seen.closed[1];
  EXPECT_EQ(record.divisor, 4.0);
  ASSERT_EQ(record.contributors.size(), 3u);
  EXPECT_FALSE(record.contributors[2].live);
  EXPECT_EQ(h.seen.closed[0].divisor, 2.0) << "its mark is gone where it had no gradient";
}

TEST(RoundsTest, WhenAllAreDeadTheirContributionsCloseOneRoundAndNoMore) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 3.0f));
  h.Kill(0);
  EXPECT_EQ(h.Open(r.table, 1), 0u) << "rank 1 is awaited";
  h.Kill(1);
  EXPECT_EQ(h.Open(r.table, 1), 1u);
  EXPECT_EQ(h.Open(r.table, 0), 0u) << "nothing to close for";
  EXPECT_EQ(h.Stored(r.table, 1), -3.0f);
}

TEST(RoundsTest, ARoundThatIsNotOpenYetIsUnavailable) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 1, 2, 1.0f));
  EXPECT_EQ(h.Answer(0),
            "error unavailable: round 1 of table \"w\" is not open yet in slot 2, which is in round 0");
  h.Deliver(0, h.Done(0, r.table, 1));
  EXPECT_EQ(h.Answer(0),
            "error unavailable: round 1 of table \"w\" is not open yet in every slot: some are in round 0");
  EXPECT_TRUE(h.seen.staged.empty());
}

TEST(RoundsTest, AnAsyncTableHasNoRounds) {
  Rounds r(1);
  auto& h = r.h;
  const TableId async = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Deliver(0, h.Give(0, async, 0, 1, 1.0f));
  EXPECT_EQ(
      h.Answer(0),
      "error invalid_argument: table \"w\" is asynchronous, a contribution is for synchronous tables: it has "
      "no rounds");
}

TEST(RoundsTest, AContributionOfTheWrongWidthIsRefusedAtTheClose) {
  ShardHarness h(1);
  TableSpec wide = ShardHarness::Sparse(Mode::kSync);
  wide.dim = 16;
  const TableId table = h.AddTable(wide);
  h.SkipAnswers();
  h.Deliver(0, h.Give(0, table, 0, 1, 1.0f));
  EXPECT_EQ(
      h.Answer(0),
      "1:invalid_argument@0 table \"w\" has dim 16, contribution has 1: recreate the table or fix the model");
  EXPECT_EQ(h.Open(table, 1), 1u);
}

TEST(RoundsTest, PullAfterAnswersWithTheValuesOfTheClosedRound) {
  Rounds r(2);
  auto& h = r.h;
  wire::FramePtr frames[2];
  for (uint32_t rank : {0u, 1u}) {
    frames[rank] = h.Contribute(rank, r.table, 0, {{1, 2.0f + static_cast<float>(rank)}, {3, 1.0f}},
                                {.done = std::vector<uint32_t>{1, 3}, .pull_after = true});
    h.Deliver(rank, frames[rank]);
  }
  EXPECT_EQ(h.Answer(0), "values -2.5 -1");
  auto answer = h.Next(1);
  auto values = wire::DecodeValues(answer->header, answer->body());
  EXPECT_EQ(values->entries[0].number, Position::Of(1, 1).packed);
  EXPECT_EQ(answer->header.round, 0u);
  h.Deliver(0, frames[0]);  // a copy gets the same
  EXPECT_EQ(h.Answer(0), "values -2.5 -1");
}

TEST(RoundsTest, ADroppedTableAnswersWhoeverWaits) {
  Rounds r(2);
  auto& h = r.h;
  h.Deliver(0, h.Give(0, r.table, 0, 1, 1.0f));
  h.Deliver(1, h.Pull(1, r.table, {1}, 1));
  h.DropTable(r.table);
  for (uint32_t rank : {0u, 1u})
    EXPECT_EQ(h.Answer(rank), "error not_found: table 1 has been dropped: create it again");
  h.Deliver(0, h.Done(0, r.table, 0));
  EXPECT_TRUE(h.Answer(0).starts_with("error not_found"));
}

TEST(RoundsTest, ParkedRequestsAreToldWhoIsMissing) {
  Rounds r(3);
  auto& h = r.h;
  h.Deliver(1, h.Give(1, r.table, 0, 1, 1.0f));
  h.Deliver(0, h.Pull(0, r.table, {1}, 1));
  h.now = 2'999'999;
  h.shard->OnTick(h.now);
  EXPECT_EQ(h.Answer(1), "");
  h.now = 3'000'000;
  h.shard->OnTick(h.now);
  EXPECT_EQ(h.Answer(1), "waiting in round 0 for 0 2");
  EXPECT_EQ(h.Answer(0), "waiting in round 0 for 0 2");
  h.now = 5'000'000;
  h.shard->OnTick(h.now);
  EXPECT_EQ(h.Answer(1), "");
  h.Deliver(2, h.Done(2, r.table, 0));
  h.now = 6'000'000;
  h.shard->OnTick(h.now);
  EXPECT_EQ(h.Answer(1), "waiting in round 0 for 0");
}

TEST(RoundsTest, ABitmapThatIsTooShortIsRefused) {
  Rounds r(1);
  auto& h = r.h;
  // Nine slots would need two bytes.
  ShardHarness many(1);
  for (int i = 0; i < 4; ++i) many.state.slots.push_back({0, 1, 1, StateVersion{1}});
  const TableId table = many.AddTable(ShardHarness::Sparse(Mode::kSync));
  many.SkipAnswers();
  many.Deliver(0, many.Done(0, table, 0));
  EXPECT_EQ(many.Answer(0),
            "error protocol: round 0 of table \"w\" has a done bitmap of 1 bytes for 9 slots");
  h.Deliver(0, h.Done(0, r.table, 0));
  EXPECT_EQ(h.Answer(0), "closed");
}

// What `cairn status` shows of it, by way of a heartbeat.
TEST(StalledRoundsTest, ARoundThatIsWaitedForIsReportedUntilItCloses) {
  ShardHarness h(3);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(0, h.Give(0, table, 0, 1, 2.0f));
  h.now += 1'000'000;
  h.Deliver(0, h.Pull(0, table, {1}, 1));
  h.shard->OnTick(h.now);
  EXPECT_TRUE(h.shard->stalled().empty()) << "a second is nothing";
  h.now += 1'500'000;
  h.Deliver(2, h.Done(2, table, 0));
  h.shard->OnTick(h.now);
  auto stalled = h.shard->stalled();
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].table, table);
  EXPECT_EQ(stalled[0].round, Round{0});
  EXPECT_EQ(stalled[0].waited_ms, 2500u);
  EXPECT_EQ(stalled[0].missing, 1u);
  EXPECT_EQ(stalled[0].missing_ranks, std::vector<uint32_t>{1});
  h.Deliver(1, h.Done(1, table, 0));
  EXPECT_TRUE(h.shard->stalled().empty());
}

}  // namespace
}  // namespace cairn::server

// Workers that have run out of data: their marks agree to everything, and all hear when only such
// are left.
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;

struct Joined {
  explicit Joined(uint32_t workers) : h(workers) {
    table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
    h.SkipAnswers();
  }
  wire::FramePtr Join(uint32_t rank, uint64_t round, ShardHarness::RoundOptions options = {}) {
    options.flags |= wire::kParamJoined;
    if (!options.done) options.done = Slots{};
    return h.Rows(rank, wire::FrameType::kDone, table, Round{round}, {}, options);
  }
  wire::FramePtr GiveFirst(uint32_t rank, uint64_t round, float value) {
    return h.Contribute(rank, table, round, {{1, value}}, {.done = Slots{1}, .flags = wire::kParamTwoPhase});
  }
  wire::FramePtr Decide(uint32_t rank, uint64_t round) {
    return h.Rows(rank, wire::FrameType::kDone, table, Round{round}, {},
                  {.done = Slots{}, .flags = wire::kParamDecide});
  }
  ShardHarness h;
  TableId table;
};

TEST(JoinedTest, AJoinedWorkerHasNoWeightAndAgreesToEverything) {
  Joined j(3);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0, {.weight = 5, .lr = 0.25f, .op = PushOp::kAssign, .column = 2}));
  h.Deliver(1, h.Give(1, j.table, 0, 1, 2.0f));
  h.Deliver(2, h.Give(2, j.table, 0, 1, 4.0f));
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(h.Answer(rank), "closed");
  EXPECT_EQ(h.Stored(j.table, 1), -3.0f);
  EXPECT_EQ(h.seen.closed[1].divisor, 2.0);
  EXPECT_EQ(h.seen.closed[1].hyper.lr, 1.0);
  EXPECT_FALSE(h.seen.closed[1].all_joined);
}

TEST(JoinedTest, ItsMarkAwaitsNoContributionWhateverItsBitmapSays) {
  Joined j(2);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0, {.done = Slots{1}}));
  h.Deliver(1, h.Give(1, j.table, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(j.table, 1), -2.0f);
}

TEST(JoinedTest, WhenAllHaveJoinedEveryAnswerSaysSoAlsoToCopies) {
  Joined j(2);
  auto& h = j.h;
  wire::FramePtr first = j.Join(0, 0);
  h.Deliver(0, first);
  h.Deliver(1, h.Rows(1, wire::FrameType::kDone, j.table, Round{0}, {{1}},
                      {.done = Slots{}, .pull_after = true, .flags = wire::kParamJoined}));
  EXPECT_EQ(h.Answer(0), "all joined, closed");
  EXPECT_EQ(h.Answer(1), "all joined, values 0");
  EXPECT_TRUE(h.seen.closed[1].all_joined);
  EXPECT_EQ(h.Stored(j.table, 1), std::nullopt);
  h.Deliver(0, first);
  EXPECT_EQ(h.Answer(0), "all joined, closed");
  // A later round that is not all joined does not say so.
  h.Deliver(0, j.Join(0, 1));
  h.Deliver(1, h.Give(1, j.table, 1, 1, 2.0f));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(1), "closed");
}

TEST(JoinedTest, ADeathCanLeaveOnlyJoinedWorkers) {
  Joined j(2);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0));
  h.Kill(1);
  EXPECT_EQ(h.Answer(0), "all joined, closed");
}

// Slot 1 closed while rank 1 lived and was not joined: the worker must not take the round as all
// joined, for rank 1 may have seen otherwise.
TEST(JoinedTest, OneSlotThatWasNotAllJoinedIsEnough) {
  Joined j(2);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0));
  h.Deliver(1, h.Contribute(1, j.table, 0, {{1, 2.0f}}, {.done = Slots{1, 2}}));
  EXPECT_EQ(h.Open(j.table, 1), 1u);
  EXPECT_EQ(h.Open(j.table, 2), 0u);
  h.Kill(1);
  EXPECT_EQ(h.Open(j.table, 2), 1u);
  EXPECT_EQ(h.Answer(0), "closed");
}

TEST(JoinedTest, AJoinedWorkerIsNotAwaitedForADecisionAndHearsOfTheClose) {
  Joined j(2);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0));
  h.Deliver(1, j.GiveFirst(1, 0, 2.0f));
  EXPECT_EQ(h.Answer(1), "report 1=4");
  EXPECT_EQ(h.Answer(0), "") << "it waits for the close";
  h.Deliver(1, j.Decide(1, 0));
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(j.table, 1), -2.0f);
}

TEST(JoinedTest, OneThatAsksForTheReportGetsItAndItsDecisionDoesNotCount) {
  Joined j(2);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0, {.flags = wire::kParamTwoPhase}));
  h.Deliver(1, j.GiveFirst(1, 0, 2.0f));
  EXPECT_EQ(h.Answer(0), "report 1=4");
  h.Deliver(0, j.Join(0, 0, {.flags = wire::kParamDecide | wire::kParamSkip}));
  EXPECT_EQ(h.Open(j.table, 1), 0u);
  h.Deliver(1, j.Decide(1, 0));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Stored(j.table, 1), -2.0f);
}

TEST(JoinedTest, ItsPhaseDecidesNothing) {
  Joined j(2);
  auto& h = j.h;
  h.Deliver(0, j.Join(0, 0, {.flags = wire::kParamTwoPhase}));
  h.Deliver(1, h.Give(1, j.table, 0, 1, 2.0f));
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Answer(0), "report") << "closed in one phase: nothing to report";
  h.Deliver(0, j.Join(0, 1, {.flags = wire::kParamTwoPhase}));
  h.Deliver(1, j.Join(1, 1, {.flags = wire::kParamTwoPhase}));
  EXPECT_EQ(h.Answer(0), "all joined, report");
  EXPECT_EQ(h.Answer(1), "all joined, report");
}

TEST(JoinedTest, AJoinedWorkerGivesNoValues) {
  Joined j(1);
  auto& h = j.h;
  h.Deliver(0, h.Contribute(0, j.table, 0, {{1, 2.0f}}, {.done = Slots{1}, .flags = wire::kParamJoined}));
  EXPECT_EQ(h.Answer(0),
            "error invalid_argument: table \"w\": a worker that has joined gives no values: mark the round "
            "instead");
  EXPECT_TRUE(h.seen.staged.empty());
}

}  // namespace
}  // namespace cairn::server

// Assigns, numbered and as rounds; segments; columns of a dense table.
#include <limits>

#include "server/shard/dense_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;
constexpr std::byte kNothing{0}, kSecond{2};

std::vector<Row> Everywhere(float value, uint64_t number = 0) {
  return {{0, value, number}, {1, value, number}, {2, value, number}, {3, value, number}};
}

struct Assigns {
  explicit Assigns(uint32_t workers, Mode mode, OptimizerKind optimizer = OptimizerKind::kSgd)
      : Assigns(workers, DenseHarness::Dense(mode, optimizer)) {}
  Assigns(uint32_t workers, TableSpec spec) : h(workers) {
    table = h.AddTable(std::move(spec));
    h.SkipAnswers();
  }
  wire::FramePtr Mark(uint32_t rank, uint64_t round, double weight, uint8_t column = 0) {
    return h.Fill(rank, wire::FrameType::kDone, table, round, {},
                  {.done = Slots{}, .weight = weight, .op = PushOp::kAssign, .column = column});
  }
  DenseHarness h;
  TableId table;
};

TEST(AssignTest, ANumberedAssignReplacesTheValuesExactlyOnce) {
  Assigns a(1, Mode::kAsync);
  auto& h = a.h;
  wire::FramePtr assign = h.PushDense(0, a.table, Everywhere(5, 1), {.op = PushOp::kAssign});
  h.Deliver(0, assign);
  h.Deliver(0, h.PushDense(0, a.table, Everywhere(2, 2)));
  h.Deliver(0, assign);  // a copy
  for (int i = 0; i < 3; ++i) EXPECT_EQ(h.Answer(0), "applied");
  EXPECT_EQ(a.h.Column(a.table), "values 3 3 3 3") << "5 - lr 1 x 2";
  EXPECT_EQ(h.shard->LastSeq(SlotId{1}, h.incarnations[0]), Seq{2});
}

TEST(AssignTest, WhatLiesInASegmentThatAnAssignLeavesOutDoesNotMatter) {
  TableSpec spec = DenseHarness::Dense(Mode::kAsync);
  spec.segments = {1, spec.size};
  Assigns a(1, spec);
  auto& h = a.h;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  h.Deliver(0, h.PushDense(0, a.table, {{3, nan, 1}}, {.op = PushOp::kAssign}, {kNothing}));
  EXPECT_EQ(h.Answer(0), "applied");
  EXPECT_EQ(h.Column(a.table), "values 0 0 0 0");
  h.Deliver(0, h.PushDense(0, a.table, {{3, nan, 2}}, {.op = PushOp::kAssign}, {kSecond}));
  EXPECT_TRUE(h.Answer(0).find("not_finite") != std::string::npos);
}

TEST(AssignTest, AssignedOnceTheSecondIsIgnoredAndItsNumberUsedUp) {
  Assigns a(2, Mode::kAsync);
  auto& h = a.h;
  h.Deliver(0, h.PushDense(0, a.table, {{0, 5, 1}, {1, 5, 1}}, {.op = PushOp::kAssignOnce}));
  h.Deliver(1, h.PushDense(1, a.table, Everywhere(7, 1), {.op = PushOp::kAssignOnce}));
  EXPECT_EQ(h.Answer(0), "applied");
  EXPECT_EQ(h.Answer(1), "applied");
  EXPECT_EQ(h.Column(a.table), "values 5 5 7 7");
  EXPECT_EQ(h.shard->LastSeq(SlotId{0}, h.incarnations[1]), Seq{1});
  h.Deliver(1, h.PushDense(1, a.table, Everywhere(9, 2), {.op = PushOp::kAssignOnce}));
  EXPECT_EQ(h.Answer(1), "applied");
  EXPECT_EQ(h.Column(a.table), "values 5 5 7 7");
}

TEST(AssignTest, APullCanWaitUntilTheValuesAreAssigned) {
  Assigns a(1, Mode::kAsync);
  auto& h = a.h;
  h.Deliver(0, h.PushDense(0, a.table, {{0, 5, 1}, {1, 5, 1}}, {.op = PushOp::kAssignOnce}));
  h.Deliver(0, h.PushDense(0, a.table, {{2, 1, 1}}));  // an update assigns nothing
  h.SkipAnswers();
  h.Deliver(0, h.PullDense(0, a.table, {0, 1, 2}, 0, wire::kFlagAssigned));
  EXPECT_EQ(h.DenseAnswer(0),
            "error unavailable: table \"model\" has no values yet in slot 2: no worker has assigned them");
  h.Deliver(0, h.PullDense(0, a.table, {0, 1}, 0, wire::kFlagAssigned));
  EXPECT_EQ(h.DenseAnswer(0), "values 5 5") << "only the slots named count";
  h.Deliver(0, h.PullDense(0, a.table, {2}));
  EXPECT_EQ(h.DenseAnswer(0), "values -1");
  const TableId sparse = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  wire::DataParts parts = h.Parts(0, wire::FrameType::kPull, sparse);
  parts.flags = wire::kFlagAssigned;
  h.Deliver(0, wire::EncodeData(std::move(parts), h.pool));
  EXPECT_TRUE(h.Answer(0).starts_with("error invalid_argument: table \"w\" is sparse, only dense tables"));
}

TEST(AssignTest, WrongAssignsAreRefusedAndUseUpTheirNumber) {
  Assigns a(1, Mode::kAsync);
  auto& h = a.h;
  h.Deliver(0, h.PushDense(0, a.table, {{0, 5, 1}}, {.op = PushOp::kAssign, .column = 1}));
  EXPECT_TRUE(h.Answer(0).starts_with("0:invalid_argument@1 table \"model\"")) << "SGD without momentum";
  h.Deliver(0, h.PushDense(0, a.table, {{0, 5, 2}}, {.value_scale = 0.5}));
  EXPECT_TRUE(
      h.Answer(0).starts_with("0:invalid_argument@2 table \"model\": a numbered push has no value scale"));
  const TableId sync = h.AddTable(DenseHarness::Dense(Mode::kSync));
  h.Deliver(0, h.PushDense(0, sync, {{0, 5, 3}}, {.op = PushOp::kAssign}));
  EXPECT_TRUE(
      h.Answer(0).starts_with("0:invalid_argument@3 table \"model\" is synchronous, a numbered push"));
  EXPECT_EQ(h.Column(a.table), "values 0 0 0 0");
  EXPECT_EQ(h.shard->LastSeq(SlotId{0}, h.incarnations[0]), Seq{3});
}

TEST(AssignTest, OneOfThreeWorkersAssignsInARound) {
  Assigns a(3, Mode::kSync);
  auto& h = a.h;
  h.Deliver(1, h.GiveDense(1, a.table, 0, Everywhere(4), {.weight = 2, .op = PushOp::kAssign}));
  h.Deliver(0, a.Mark(0, 0, 0));
  h.Deliver(2, h.Fill(2, wire::FrameType::kDone, a.table, 0, {{0}, {3}},
                      {.done = Slots{}, .weight = 0, .pull_after = true, .op = PushOp::kAssign}));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.DenseAnswer(2), "values 4 4");
  EXPECT_EQ(h.Column(a.table), "values 4 4 4 4");
  EXPECT_EQ(h.seen.closed[0].op, PushOp::kAssign);
  EXPECT_EQ(h.seen.closed[0].divisor, 2.0);
  h.Deliver(0, h.PullDense(0, a.table, {0}, 0, wire::kFlagAssigned));
  EXPECT_EQ(h.DenseAnswer(0), "values 4");
}

TEST(AssignTest, AnAssignIsTheMeanAlsoWhereUpdatesAreSums) {
  TableSpec spec = DenseHarness::Dense(Mode::kSync, OptimizerKind::kSum);
  Assigns sum(2, spec);
  spec.optimizer = OptimizerKind::kSgd;
  spec.optimizer_flags = kReduceSum;
  Assigns reduce(2, spec);
  for (Assigns* a : {&sum, &reduce}) {
    for (uint32_t rank : {0u, 1u}) {
      a->h.Deliver(rank,
                   a->h.GiveDense(rank, a->table, 0, Everywhere(4), {.weight = 3, .op = PushOp::kAssign}));
    }
    a->h.SkipAnswers();
    EXPECT_EQ(a->h.Column(a->table), "values 4 4 4 4");
  }
}

TEST(AssignTest, ARoundInWhichNobodyGivesValuesIsUnavailableForAll) {
  Assigns a(2, Mode::kSync);
  auto& h = a.h;
  wire::FramePtr marks[2] = {a.Mark(0, 0, 0), a.Mark(1, 0, 0)};
  for (uint32_t rank : {0u, 1u}) h.Deliver(rank, marks[rank]);
  const std::string answer = h.Answer(0);
  EXPECT_EQ(
      answer,
      "0:unavailable@0 1:unavailable@0 2:unavailable@0 3:unavailable@0 round 0 of table \"model\": nobody "
      "gave values: give them in the next round");
  EXPECT_EQ(h.Answer(1), answer);
  h.Deliver(1, marks[1]);
  EXPECT_EQ(h.Answer(1), answer) << "and every copy";
  EXPECT_EQ(h.seen.closed[0].outcome, Code::kUnavailable);
  h.Deliver(0, h.GiveDense(0, a.table, 1, Everywhere(4), {.op = PushOp::kAssign}));
  h.Deliver(1, a.Mark(1, 1, 0));
  EXPECT_EQ(h.Answer(1), "closed");
  EXPECT_EQ(h.Answer(0), "closed");
}

TEST(AssignTest, WhoDiesAfterItsPartHasAssignedAndBeforeItHasNot) {
  Assigns a(2, Mode::kSync);
  auto& h = a.h;
  h.Deliver(0, h.Fill(0, wire::FrameType::kContribute, a.table, 0, {{1, 4}}, {.op = PushOp::kAssign}));
  h.Deliver(1, a.Mark(1, 0, 0));
  h.Kill(0);
  const std::string answer = h.Answer(1);
  EXPECT_TRUE(answer.starts_with("0:unavailable@0 2:unavailable@0 3:unavailable@0 ")) << answer;
}

TEST(AssignTest, AWorkerWhosePartWasRefusedIsToldWhyAndTheOthersThatNobodyGaveValues) {
  Assigns a(2, Mode::kSync);
  auto& h = a.h;
  h.Deliver(0, h.GiveDense(0, a.table, 0, {{1, 4}}, {.op = PushOp::kAssign, .column = 2}));
  h.Deliver(1, a.Mark(1, 0, 0, 2));
  EXPECT_TRUE(h.Answer(0).starts_with("1:invalid_argument@0 "));
  EXPECT_TRUE(h.Answer(1).starts_with("1:unavailable@0 round 0"));
}

TEST(AssignTest, OperationsAndColumnsAreComparedLikeHyperParameters) {
  TableSpec spec = DenseHarness::Dense(Mode::kSync);
  spec.optimizer_flags = kWithMomentum;
  Assigns a(2, spec);
  auto& h = a.h;
  h.Deliver(0, h.GiveDense(0, a.table, 0, Everywhere(4), {.op = PushOp::kAssign}));
  h.Deliver(1, h.GiveDense(1, a.table, 0, Everywhere(4)));
  EXPECT_TRUE(h.Answer(1).ends_with("rank 0 assigns, rank 1 pushes gradients: do the same on all workers"));
  h.SkipAnswers();
  h.Deliver(0, h.GiveDense(0, a.table, 1, Everywhere(4), {.op = PushOp::kAssign, .column = 1}));
  h.Deliver(1, a.Mark(1, 1, 0, 0));
  EXPECT_TRUE(
      h.Answer(1).ends_with("rank 0 assigns column 1, rank 1 assigns column 0: do the same on all workers"));
  h.SkipAnswers();
  h.Deliver(0, h.GiveDense(0, a.table, 2, Everywhere(4), {.momentum = 0.9}));
  h.Deliver(1, h.GiveDense(1, a.table, 2, Everywhere(4), {.momentum = 0.5}));
  EXPECT_TRUE(
      h.Answer(1).ends_with("rank 0 has momentum 0.9, rank 1 has momentum 0.5: give all workers the same"));
  h.SkipAnswers();
  h.Deliver(0, h.GiveDense(0, a.table, 3, Everywhere(4), {.momentum = 0.5}));
  h.Deliver(1, h.GiveDense(1, a.table, 3, Everywhere(4), {.momentum = 0.5000000001}));
  EXPECT_TRUE(h.Answer(1).ends_with(
      "rank 0 has momentum 0.5, rank 1 has momentum 0.50000000010000001: give all workers the same"));
  h.SkipAnswers();
  EXPECT_EQ(h.Column(a.table), "values 0 0 0 0");
}

TEST(AssignTest, WhatARoundCanNotDoIsRefusedAtOnce) {
  Assigns a(1, Mode::kSync);
  auto& h = a.h;
  h.Deliver(0, h.GiveDense(0, a.table, 0, {{1, 4}}, {.op = PushOp::kAssignOnce}));
  EXPECT_TRUE(
      h.Answer(0).starts_with("error invalid_argument: table \"model\" is synchronous, assigning once"));
  h.Deliver(0, h.GiveDense(0, a.table, 0, {{1, 4}}, {.flags = wire::kParamTwoPhase, .op = PushOp::kAssign}));
  EXPECT_TRUE(h.Answer(0).starts_with("error invalid_argument: table \"model\": an assign has nothing to"));
  EXPECT_EQ(h.Open(a.table, 1), 0u);
}

TEST(AssignTest, StateAndStepsArePulledAndAssignedAsColumns) {
  TableSpec spec = DenseHarness::Dense(Mode::kAsync, OptimizerKind::kAdam);
  Assigns a(1, spec);
  auto& h = a.h;
  uint64_t number = 0;
  for (uint8_t column : {uint8_t{0}, uint8_t{1}, uint8_t{2}, kStepColumn}) {
    h.Deliver(0, h.PushDense(0, a.table, Everywhere(static_cast<float>(10 + column), ++number),
                             {.op = PushOp::kAssign, .column = column}));
    EXPECT_EQ(h.Answer(0), "applied");
  }
  EXPECT_EQ(h.Column(a.table, 0), "values 10 10 10 10");
  EXPECT_EQ(h.Column(a.table, 1), "values 11 11 11 11");
  EXPECT_EQ(h.Column(a.table, 2), "values 12 12 12 12");
  EXPECT_EQ(h.Column(a.table, kStepColumn), "values 25 25 25 25");
  EXPECT_TRUE(h.Column(a.table, 3).starts_with("error invalid_argument")) << "Adam without amsgrad";
}

TEST(AssignTest, SegmentsThatAMaskLeavesOutAreLeftAlone) {
  TableSpec spec = DenseHarness::Dense(Mode::kAsync);
  spec.segments = {1024, spec.size};  // the first is one block and lies in one slot
  Assigns a(1, spec);
  auto& h = a.h;
  const wire::DenseLayout layout = wire::DenseLayout::Of(a.table, spec.size, ShardHarness::kSlots);
  const uint32_t first = layout.SlotOfBlock(0);
  ASSERT_LT(first, ShardHarness::kOwned) << "the first segment has to lie in this shard";
  std::string expected = "values";
  for (uint32_t slot = 0; slot < 4; ++slot) expected += slot == first ? " 0" : " 3";
  h.Deliver(0, h.PushDense(0, a.table, Everywhere(5, 1), {.op = PushOp::kAssign}, {kSecond}));
  h.Deliver(0, h.PushDense(0, a.table, Everywhere(2, 2), {}, {kSecond}));
  h.SkipAnswers();
  EXPECT_EQ(h.Column(a.table), expected);

  spec.mode = Mode::kSync;
  spec.name = "sync";
  const TableId sync = h.AddTable(spec);
  const uint32_t first_sync = wire::DenseLayout::Of(sync, spec.size, ShardHarness::kSlots).SlotOfBlock(0);
  expected = "values";
  for (uint32_t slot = 0; slot < 4; ++slot) expected += slot == first_sync ? " 0" : " -2";
  h.Deliver(0, h.GiveDense(0, sync, 0, Everywhere(2), {}, {kSecond}));
  h.SkipAnswers();
  EXPECT_EQ(h.Column(sync), expected);
  h.Deliver(0, h.GiveDense(0, sync, 1, Everywhere(2), {}, {kNothing}));
  h.SkipAnswers();
  EXPECT_EQ(h.Column(sync), expected);
}

// A worker without a segment counts as zero, with its weight.
TEST(AssignTest, ASegmentsMeanIsOverTheWholeDivisor) {
  TableSpec spec = DenseHarness::Dense(Mode::kSync);
  spec.segments = {1024, spec.size};
  spec.deterministic = true;  // the mask waits with its frame
  Assigns a(2, spec);
  auto& h = a.h;
  const uint32_t first = wire::DenseLayout::Of(a.table, spec.size, ShardHarness::kSlots).SlotOfBlock(0);
  h.Deliver(1, h.GiveDense(1, a.table, 0, Everywhere(2), {}, {kSecond}));
  h.Deliver(0, h.GiveDense(0, a.table, 0, Everywhere(4)));
  h.SkipAnswers();
  std::string expected = "values";
  for (uint32_t slot = 0; slot < 4; ++slot) expected += slot == first ? " -2" : " -3";
  EXPECT_EQ(h.Column(a.table), expected);
}

}  // namespace
}  // namespace cairn::server

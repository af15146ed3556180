// Sparse tables beyond plain pushes: rows with optimizer state, assigns of rows, steps, columns, the
// keys that exist, and the count of round trips.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;
using Options = ShardHarness::RoundOptions;

struct RowTables : ShardHarness {
  using ShardHarness::ShardHarness;
  wire::FramePtr Assign(uint32_t rank, TableId table, std::vector<Row> rows, PushOp op = PushOp::kAssign,
                        uint8_t column = 0) {
    return Rows(rank, wire::FrameType::kPush, table, Round{0}, std::move(rows), {.op = op, .column = column});
  }
  // What a pull of a column of slots 0 to 3 says.
  std::string Column(TableId table, uint8_t column, std::optional<uint64_t> sync_round = {}) {
    SkipAnswers();
    Deliver(0, Pull(0, table, {0, 1, 2, 3}, sync_round, column));
    return Answer(0);
  }
  // "slot:key,key …" of the next answer.
  std::string Keys(uint32_t rank) {
    auto frame = Next(rank);
    if (!frame || frame->header.type != wire::FrameType::kPullReply) return Describe(frame);
    const auto view = wire::DecodeValues(frame->header, frame->body());
    std::string text;
    const std::byte* at = view->values.data();
    for (const wire::SlotEntry& entry : view->entries) {
      text += (text.empty() ? "" : " ") + std::to_string(entry.slot) + ":";
      for (uint32_t i = 0; i < entry.count; ++i, at += sizeof(RowKey)) {
        RowKey key;
        std::memcpy(&key, at, sizeof(key));
        EXPECT_EQ(wire::SlotOfKey(key, kSlots).value, entry.slot);
        text += (i == 0 ? "" : ",") + std::to_string(key);
      }
    }
    EXPECT_EQ(at, view->values.data() + view->values.size());
    return text;
  }
};

TEST(RowTablesTest, RowsAreAssignedByNumberedPushesInBothModes) {
  for (Mode mode : {Mode::kAsync, Mode::kSync}) {
    SCOPED_TRACE(static_cast<int>(mode));
    RowTables h(2);
    const TableId table = h.AddTable(ShardHarness::Sparse(mode));
    h.SkipAnswers();
    wire::FramePtr assign = h.Assign(0, table, {{1, 5, 1}, {2, 6, 1}});
    h.Deliver(0, assign);
    EXPECT_EQ(h.Answer(0), "applied");
    h.Deliver(1, h.Assign(1, table, {{1, 7, 1}}));
    h.Deliver(0, assign);  // a copy changes nothing any more
    EXPECT_EQ(h.Answer(1), "applied");
    EXPECT_EQ(h.Answer(0), "applied");
    EXPECT_EQ(h.Stored(table, 1), 7.0f);
    EXPECT_EQ(h.Stored(table, 2), 6.0f);
    EXPECT_EQ(h.Stored(table, 0), std::nullopt);
    // Once: only the row that is missing.
    h.Deliver(1, h.Assign(1, table, {{0, 8, 1}, {1, 8, 2}}, PushOp::kAssignOnce));
    EXPECT_EQ(h.Answer(1), "applied");
    EXPECT_EQ(h.Stored(table, 0), 8.0f);
    EXPECT_EQ(h.Stored(table, 1), 7.0f);
    EXPECT_EQ(h.shard->LastSeq(SlotId{1}, h.incarnations[1]), Seq{2});
    EXPECT_EQ(h.Open(table, 1), 0u) << "no round";
  }
}

TEST(RowTablesTest, AWrongAssignChangesNothingAndEveryCopyIsToldTheSame) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  RowTables h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  h.SkipAnswers();
  wire::FramePtr bad = h.Assign(0, table, {{0, 1, 1}, {1, nan, 1}});
  for (int copy = 0; copy < 2; ++copy) {
    h.Deliver(0, bad);
    EXPECT_TRUE(h.Answer(0).starts_with("1:not_finite@1 ")) << copy;
  }
  EXPECT_EQ(h.Stored(table, 0), 1.0f) << "the other slot's part is good";
  EXPECT_EQ(h.Stored(table, 1), std::nullopt);
  for (uint8_t column : {uint8_t{2}, uint8_t{14}}) {
    wire::FramePtr state = h.Assign(0, table, {{2, 1, column == 2 ? 1u : 2u}}, PushOp::kAssign, column);
    for (int copy = 0; copy < 2; ++copy) {
      h.Deliver(0, state);
      EXPECT_NE(h.Answer(0).find("has no column"), std::string::npos);
    }
  }
  EXPECT_EQ(h.Stored(table, 2), std::nullopt);
  EXPECT_EQ(h.shard->LastSeq(SlotId{2}, h.incarnations[0]), Seq{2});
  // An update by a numbered push stays what it was in a sync table.
  h.Deliver(0, h.Push(0, table, {{3, 1, 1}}));
  EXPECT_TRUE(h.Answer(0).starts_with("3:invalid_argument@1 table \"w\" is synchronous, a numbered push"));
}

TEST(RowTablesTest, AnAssignOfRowsIsNoRound) {
  RowTables h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  for (PushOp op : {PushOp::kAssign, PushOp::kAssignOnce}) {
    h.Deliver(0, h.Contribute(0, table, 0, {{1, 5}}, {.done = Slots{1}, .op = op}));
    EXPECT_TRUE(h.Answer(0).starts_with("error invalid_argument: table \"w\" is sparse: an assign of rows"));
  }
  EXPECT_EQ(h.Open(table, 1), 0u);
}

TEST(RowTablesTest, StateAndStepsOfRowsAreAssigned) {
  RowTables h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  h.Deliver(0, h.Give(0, table, 0, 1, 3));  // the sum is 9, w = 0 - 3 / 3
  h.SkipAnswers();
  h.Deliver(0, h.Assign(0, table, {{1, 16, 1}, {2, 25, 1}}, PushOp::kAssign, 1));
  EXPECT_EQ(h.Answer(0), "applied");
  h.Deliver(0, h.Assign(0, table, {{1, 12, 2}}, PushOp::kAssign, kStepColumn));
  EXPECT_EQ(h.Answer(0), "applied");
  EXPECT_EQ(h.Column(table, 0), "values 0 -1 0 0");
  EXPECT_EQ(h.Column(table, 1), "values 0 16 25 0");
  EXPECT_EQ(h.Column(table, kStepColumn), "values 0 12 0 0");
  EXPECT_EQ(h.Open(table, 1), 1u) << "no round";
  h.Deliver(0, h.Give(0, table, 1, 1, 3));  // the sum is 25, w = -1 - 3 / 5
  EXPECT_EQ(h.Stored(table, 1), -1.6f);
}

TEST(RowTablesTest, AnAssignBetweenRoundsKeepsTheState) {
  RowTables h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  h.Deliver(0, h.Give(0, table, 0, 1, 3));  // the sum is 9, w = 0 - 3 / 3
  EXPECT_EQ(h.Stored(table, 1), -1.0f);
  h.Deliver(0, h.Assign(0, table, {{1, 10, 1}}));
  EXPECT_EQ(h.Column(table, 0), "values 0 10 0 0");
  EXPECT_EQ(h.Column(table, 1), "values 0 9 0 0");
  h.Deliver(0, h.Give(0, table, 1, 1, 4));  // the sum is 25, w = 10 - 4 / 5
  EXPECT_EQ(h.Column(table, 0), "values 0 9.2 0 0");
}

TEST(RowTablesTest, ColumnsOfRowsThatAreMissingReadAsTheyBegin) {
  RowTables h(1);
  TableSpec spec = ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kFtrl);
  spec.initial_state = 0.5f;
  spec.init = Init::Constant(2);
  const TableId table = h.AddTable(spec);
  EXPECT_EQ(h.Column(table, 0), "values 2 2 2 2");
  EXPECT_EQ(h.Column(table, 1), "values 0 0 0 0");
  EXPECT_EQ(h.Column(table, 2), "values 0.5 0.5 0.5 0.5");
  EXPECT_EQ(h.Column(table, kStepColumn), "values 0 0 0 0");
  EXPECT_TRUE(h.Column(table, 3).starts_with("error invalid_argument: table \"w\" has no column 3"));
  EXPECT_EQ(h.Stored(table, 1), std::nullopt) << "a pull makes no row";
}

TEST(RowTablesTest, AnAsyncSlotRemembersItsHighestStep) {
  RowTables h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kAdagrad));
  const auto push = [&](uint32_t rank, std::vector<Row> rows, uint64_t step) {
    h.Deliver(rank, h.Rows(rank, wire::FrameType::kPush, table, Round{0}, std::move(rows), {.step = step}));
  };
  push(0, {{0, 1, 1}, {1, 1, 1}}, 5);
  push(1, {{1, 1, 1}, {2, 1, 1}}, 3);
  EXPECT_EQ(h.Column(table, kStepColumn), "values 5 5 3 0");
  push(1, {{1, 1, 2}}, 9);
  push(1, {{2, std::numeric_limits<float>::infinity(), 2}}, 9);  // refused
  EXPECT_EQ(h.Column(table, kStepColumn), "values 5 9 3 0");
}

TEST(RowTablesTest, ARoundGivesItsStepToEverySlot) {
  RowTables h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  const auto give = [&](uint32_t rank, uint64_t round, uint64_t step, double weight = 1) {
    h.Deliver(rank, h.Contribute(rank, table, round, {{rank, 1}},
                                 {.done = Slots{rank}, .weight = weight, .step = step}));
  };
  give(0, 0, 7);
  EXPECT_EQ(h.Column(table, kStepColumn, 0), "values 0 0 0 0");
  give(1, 0, 7);
  EXPECT_EQ(h.Column(table, kStepColumn, 1), "values 7 7 7 7") << "slots without a gradient too";
  give(0, 1, 6);
  give(1, 1, 6);
  EXPECT_EQ(h.Column(table, kStepColumn, 2), "values 6 6 6 6") << "the last, not the highest";
  // A divisor of 0 applies nothing.
  give(0, 2, 8, 0);
  give(1, 2, 8, 0);
  EXPECT_EQ(h.Column(table, kStepColumn, 3), "values 6 6 6 6");
  h.SkipAnswers();
  give(0, 3, 8);
  give(1, 3, 9);
  EXPECT_NE(h.Answer(0).find("rank 0 is in step 8, rank 1 is in step 9"), std::string::npos);
  EXPECT_EQ(h.Column(table, kStepColumn, 4), "values 6 6 6 6") << "refused";
}

TEST(RowTablesTest, AStepOfZeroSaysNothing) {
  RowTables h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  const auto give = [&](uint32_t rank, uint64_t round, uint64_t step) {
    h.Deliver(rank, h.Contribute(rank, table, round, {{rank, 1}}, {.done = Slots{rank}, .step = step}));
  };
  give(0, 0, 0);
  give(1, 0, 5);
  EXPECT_EQ(h.Column(table, kStepColumn, 1), "values 5 5 5 5") << "of the one who counts";
  give(0, 1, 0);
  give(1, 1, 0);
  EXPECT_EQ(h.Column(table, kStepColumn, 2), "values 5 5 5 5") << "nobody counts: no step";
}

TEST(RowTablesTest, TheDecisionOfTwoPhasesBringsTheStepUnlessItSkips) {
  RowTables h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync, OptimizerKind::kAdagrad));
  const auto round = [&](uint64_t number, uint64_t step, uint16_t decision) {
    h.Deliver(0, h.Contribute(0, table, number, {{1, 1}},
                              {.done = Slots{1}, .flags = wire::kParamTwoPhase, .step = step}));
    EXPECT_EQ(h.Column(table, kStepColumn, number), number == 0 ? "values 0 0 0 0" : "values 4 4 4 4");
    h.Deliver(0, h.Rows(0, wire::FrameType::kDone, table, Round{number}, {},
                        {.done = Slots{}, .flags = decision, .step = step}));
  };
  round(0, 4, wire::kParamDecide);
  EXPECT_EQ(h.Column(table, kStepColumn, 1), "values 4 4 4 4");
  EXPECT_EQ(h.Column(table, 1, 1), "values 0 1 0 0");
  round(1, 5, wire::kParamDecide | wire::kParamSkip);
  EXPECT_EQ(h.Column(table, kStepColumn, 2), "values 4 4 4 4");
  EXPECT_EQ(h.Column(table, 1, 2), "values 0 1 0 0");
}

TEST(RowTablesTest, KeysOfTheRowsThatExist) {
  RowTables h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Deliver(0, h.Push(0, table, {{0, 1, 1}, {2, 1, 1}}));
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, table, {0, 1, 2}, {}, kKeyColumn));
  const auto key = [](uint32_t slot) { return std::to_string(ShardHarness::KeyIn(slot)); };
  EXPECT_EQ(h.Keys(0), "0:" + key(0) + " 1: 2:" + key(2));
  // Another table of the same slots has none.
  const TableId other = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Deliver(0, h.Pull(0, other, {0}, {}, kKeyColumn));
  EXPECT_EQ(h.Keys(0), "0:");
  // With keys, and of a dense table.
  wire::DataParts parts = h.Parts(0, wire::FrameType::kPull, table);
  const wire::SlotEntry entry{0, 1, kKeyColumn};
  const uint64_t named = ShardHarness::KeyIn(0);
  parts.entries = {&entry, 1};
  parts.keys = {&named, 1};
  h.Deliver(0, wire::EncodeData(std::move(parts), h.pool));
  EXPECT_NE(h.Answer(0).find("who asks for its keys names none"), std::string::npos);
  TableSpec dense;
  dense.name = "model";
  dense.size = 10;
  const TableId model = h.AddTable(dense);
  h.Deliver(0, h.Pull(0, model, {0}, {}, kKeyColumn));
  EXPECT_NE(h.Answer(0).find("has no column 14"), std::string::npos);
}

TEST(RowTablesTest, AnswersThatWouldBeTooLargeAreRefusedInWords) {
  ShardOptions options;
  options.most_value_bytes = 8;
  RowTables h(1, options);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Deliver(0, h.Push(0, table, {{0, 1, 1}, {2, 1, 1}}));
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, table, {0}, {}, kKeyColumn));
  EXPECT_EQ(h.Keys(0), "0:" + std::to_string(ShardHarness::KeyIn(0)));
  h.Deliver(0, h.Pull(0, table, {0, 1, 2}, {}, kKeyColumn));
  EXPECT_EQ(h.Answer(0),
            "error invalid_argument: table \"w\": the keys of 2 rows are more than an answer holds, which is "
            "1: ask for those of fewer slots at a time");
  EXPECT_EQ(h.Column(table, 0),
            "error invalid_argument: table \"w\": an answer of 16 bytes is above the limit of 8: pull fewer "
            "rows at a time");
}

TEST(RowTablesTest, ASyncPullOfKeysWaitsForItsRound) {
  RowTables h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, table, {1, 2}, 1, kKeyColumn));
  EXPECT_EQ(h.Keys(0), "");
  h.Deliver(0, h.Done(0, table, 0));
  EXPECT_EQ(h.Keys(0), "");
  h.Deliver(1, h.Give(1, table, 0, 2, 1));
  EXPECT_EQ(h.Keys(0), "1: 2:" + std::to_string(ShardHarness::KeyIn(2)));
}

TEST(RowTablesTest, SettingsThatAnOptimizerCannotUseAreRefused) {
  RowTables h(1);
  const auto told = [&](OptimizerKind kind, Options options) {
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync, kind));
    const uint64_t number = h.shard->LastSeq(SlotId{1}, h.incarnations[0]).value + 1;
    h.SkipAnswers();
    h.Deliver(0, h.Rows(0, wire::FrameType::kPush, table, Round{0}, {{1, 1, number}}, options));
    const std::string answer = h.Answer(0);
    EXPECT_EQ(h.Stored(table, 1).has_value(), answer == "applied");
    return answer;
  };
  using enum OptimizerKind;
  EXPECT_NE(told(kFtrl, {.lr = 0}).find("ftrl divides by its lr"), std::string::npos);
  EXPECT_NE(told(kFtrl, {.momentum = -1}).find("must not be negative"), std::string::npos);
  EXPECT_NE(told(kRowwiseAdagrad, {.weight_decay = 0.1}).find("has no weight decay"), std::string::npos);
  EXPECT_NE(told(kSparseAdam, {.weight_decay = 0.1}).find("has no weight decay"), std::string::npos);
  EXPECT_EQ(told(kFtrl, {.weight_decay = 0.1}), "applied");
  EXPECT_EQ(told(kSgd, {.lr = 0, .weight_decay = 0.1}), "applied");
  EXPECT_EQ(told(kFtrl, {.lr = 0, .op = PushOp::kAssign}), "applied") << "an assign does not use it";
}

TEST(RowTablesTest, FramesThatBeginARoundTripAreCounted) {
  RowTables h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  const TableId rounds = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  const auto deliver = [&](wire::FramePtr frame, bool first) {
    if (first) frame->header().flags |= wire::kFlagTrip;
    wire::Seal(*frame);
    h.Deliver(0, frame);
  };
  deliver(h.Push(0, table, {{0, 1, 1}}), true);
  deliver(h.Push(0, table, {{0, 1, 2}}), false);
  EXPECT_EQ(h.shard->stats().round_trips, 1u);
  deliver(h.Pull(0, table, {0}), true);
  deliver(h.Give(0, rounds, 0, 1, 1), true);
  deliver(h.Done(0, rounds, 0), true);
  EXPECT_EQ(h.shard->stats().round_trips, 4u);
}

// A frame that is sent again need not begin a round trip, and is the same request all the same.
TEST(RowTablesTest, ACopyWithoutTheMarkTakesThePlaceOfTheParkedOne) {
  RowTables h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  wire::FramePtr give = h.Give(0, table, 0, 1, 1);
  give->header().flags |= wire::kFlagTrip;
  wire::Seal(*give);
  h.Deliver(0, give);
  give->header().flags &= ~wire::kFlagTrip;
  wire::Seal(*give);
  h.now = 2'000'000;
  h.Deliver(0, give);
  h.shard->OnTick(3'000'000);
  EXPECT_EQ(h.Answer(0), "waiting in round 0 for 1") << "since the first of them came";
  h.Deliver(1, h.Done(1, table, 0));
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(0), "") << "one answer";
}

}  // namespace
}  // namespace cairn::server

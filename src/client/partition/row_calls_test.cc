// Calls that only tables of rows have: assigns, columns, keys; and what is refused of them.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "client/partition/partition.h"
#include "client/partition/partition_reader_testing.h"
#include "client/partition/scatter.h"

namespace cairn::client {
namespace {

class RowCalls : public ::testing::Test {
 protected:
  RowCalls() : random(9), state(StateOf(3, 2, 40, random)) {}

  static wire::TableInfo Table(Mode mode, OptimizerKind optimizer = OptimizerKind::kSgd) {
    TableSpec spec{.name = "e", .kind = TableKind::kSparse, .mode = mode, .dim = 2};
    spec.optimizer = optimizer;
    return {TableId{3}, spec, {}};
  }
  PartitionInput Input(const wire::TableInfo& table) {
    PartitionInput input{.state = &state, .table = &table, .keys = keys};
    input.values = std::as_bytes(std::span(rows));
    input.out = std::as_writable_bytes(std::span(out));
    return input;
  }
  static std::string Text(const Result<Request>& request) {
    return request.ok() ? "" : request.status().message();
  }
  bool Wrong(const Result<Request>& request, const std::string& part) {
    EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
    EXPECT_NE(Text(request).find(part), std::string::npos) << Text(request);
    return !request.ok();
  }

  Random random;
  const wire::ClusterState state;
  BufferPool pool;
  std::vector<RowKey> keys{5, 9, 5, 7, 5};
  std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<float> out = std::vector<float>(10, -1);
};

TEST_F(RowCalls, OfAnAssignTheLastRowOfAKeyCountsInBothModes) {
  for (Mode mode : {Mode::kAsync, Mode::kSync}) {
    for (PushOp op : {PushOp::kAssign, PushOp::kAssignOnce}) {
      const wire::TableInfo table = Table(mode);
      EXPECT_TRUE(IsNumbered(table.spec, op));
      PartitionInput input = Input(table);
      input.op = op;
      const Request request = PreparePush(input, pool).value();
      EXPECT_EQ(request.kind, Request::Kind::kPush);
      std::map<RowKey, std::vector<float>> got;
      for (const ShardPart& part : request.parts) {
        const Seen seen = Read(part, pool);
        ExpectRouted(state, part, seen);
        EXPECT_EQ(seen.header.type, wire::FrameType::kPush);
        EXPECT_EQ(seen.params.op, static_cast<uint8_t>(op));
        const std::vector<float> values = Floats(seen.values);
        for (size_t k = 0; k < seen.keys.size(); ++k) got[seen.keys[k]] = {values[2 * k], values[2 * k + 1]};
      }
      const std::map<RowKey, std::vector<float>> last{{5, {9, 10}}, {7, {7, 8}}, {9, {3, 4}}};
      EXPECT_EQ(got, last);
    }
  }
}

TEST_F(RowCalls, AnAssignIsFiniteAsAnyPushIs) {
  const wire::TableInfo table = Table(Mode::kSync);
  PartitionInput input = Input(table);
  input.op = PushOp::kAssign;
  rows[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(PreparePush(input, pool).status().code(), Code::kNotFinite);
  // Large rows of one key are not added: nothing overflows.
  rows.assign(10, std::numeric_limits<float>::max());
  EXPECT_TRUE(PreparePush(input, pool).ok());
  input.op = PushOp::kUpdate;
  const wire::TableInfo async = Table(Mode::kAsync);
  input.table = &async;
  EXPECT_EQ(PreparePush(input, pool).status().code(), Code::kNotFinite);
}

TEST_F(RowCalls, AssignsThatAreRefused) {
  const wire::TableInfo sync = Table(Mode::kSync), async = Table(Mode::kAsync);
  PartitionInput input = Input(sync);
  EXPECT_TRUE(Wrong(PreparePush(input, pool), "its pushes are rounds"));
  input.op = PushOp::kAssign;
  EXPECT_TRUE(Wrong(PrepareRound(input, pool), "is not a round: push it, and pull afterwards"));
  input.weight = 2;
  EXPECT_TRUE(Wrong(PreparePush(input, pool), "is not a round: leave weight out"));
  input.weight = 1;
  input.column = 1;
  EXPECT_TRUE(Wrong(PreparePush(input, pool), "has no column 1"));
  input.column = kStepColumn;
  EXPECT_TRUE(PreparePush(input, pool).ok());
  wire::TableInfo integers = async;
  integers.spec.element = ElementType::kInt64;
  input.table = &integers;
  input.column = 0;
  EXPECT_TRUE(Wrong(PreparePush(input, pool), "of int64: an assign is for tables of float32"));
  // A dense table's assign is a round all the same.
  const TableSpec dense{.name = "w", .mode = Mode::kSync, .size = 5};
  EXPECT_FALSE(IsNumbered(dense, PushOp::kAssign));
  EXPECT_TRUE(IsNumbered(dense, PushOp::kAssignOnce));
}

TEST_F(RowCalls, AColumnIsAskedForInEveryEntry) {
  const wire::TableInfo table = Table(Mode::kAsync, OptimizerKind::kSparseAdam);
  for (uint8_t column : {uint8_t{0}, uint8_t{1}, uint8_t{2}, kStepColumn}) {
    PartitionInput input = Input(table);
    input.pull_column = column;
    const Request request = PreparePull(input, pool).value();
    size_t asked = 0;
    for (const ShardPart& part : request.parts) {
      const Seen seen = Read(part, pool);
      for (const wire::SlotEntry& entry : seen.entries) {
        EXPECT_EQ(entry.number, column);
        asked += entry.count;
      }
    }
    EXPECT_EQ(asked, keys.size());
  }
  PartitionInput input = Input(table);
  for (uint8_t column : {uint8_t{3}, kKeyColumn}) {
    input.pull_column = column;
    EXPECT_TRUE(Wrong(PreparePull(input, pool), "has no column " + std::to_string(column)));
  }
  input.pull_column = 0;
  input.when_assigned = true;
  EXPECT_TRUE(Wrong(PreparePull(input, pool), "leave when_assigned out"));
}

TEST_F(RowCalls, KeysAreAskedOfEverySlotOnceAndTakenAsTheyCome) {
  for (Mode mode : {Mode::kAsync, Mode::kSync}) {
    const wire::TableInfo table = Table(mode);
    PartitionInput input{.state = &state, .table = &table};
    std::vector<RowKey> all{1000};
    const Request request = PrepareKeys(input, &all, pool).value();
    EXPECT_EQ(request.kind, Request::Kind::kPull);
    std::set<uint32_t> slots;
    for (const ShardPart& part : request.parts) {
      const Seen seen = Read(part, pool);
      EXPECT_EQ((seen.header.flags & wire::kFlagSyncPull) != 0, mode == Mode::kSync);
      EXPECT_TRUE(seen.keys.empty());
      EXPECT_LE(seen.entries.size(), 16u);
      std::vector<wire::SlotEntry> reply;
      std::vector<RowKey> rows_there;
      for (const wire::SlotEntry& entry : seen.entries) {
        EXPECT_EQ(state.slots[entry.slot].server, part.server);
        EXPECT_EQ(state.slots[entry.slot].thread, part.thread);
        EXPECT_EQ(entry.number, kKeyColumn);
        EXPECT_EQ(entry.count, 0u);
        EXPECT_TRUE(slots.insert(entry.slot).second);
        reply.push_back({entry.slot, entry.slot % 3, 1});
        for (uint32_t i = 0; i < entry.slot % 3; ++i) rows_there.push_back(10 * entry.slot + i);
      }
      EXPECT_EQ(KeyBytes(reply), rows_there.size() * sizeof(RowKey));
      Scatter(part, BytesOf(rows_there));
    }
    EXPECT_EQ(slots.size(), state.slots.size());
    std::set<RowKey> expected{1000};
    for (uint32_t slot = 0; slot < 40; ++slot) {
      for (uint32_t i = 0; i < slot % 3; ++i) expected.insert(10 * slot + i);
    }
    EXPECT_EQ(all.size(), expected.size());
    EXPECT_EQ(std::set<RowKey>(all.begin(), all.end()), expected);
  }
  wire::TableInfo dense{TableId{1}, {.name = "w", .size = 4}, {}};
  std::vector<RowKey> none;
  EXPECT_TRUE(Wrong(PrepareKeys({.state = &state, .table = &dense}, &none, pool), "is dense"));
}

TEST_F(RowCalls, TheTwoPhasesOfARoundOfRows) {
  const wire::TableInfo table = Table(Mode::kSync, OptimizerKind::kSparseAdam);
  PartitionInput input = Input(table);
  input.hyper.step = 4;
  input.phase = RoundPhase::kContribute;
  const Request contribute = PrepareRound(input, pool).value();
  EXPECT_EQ(contribute.kind, Request::Kind::kContribute);
  EXPECT_EQ(contribute.parts.size(), 6u);
  std::map<RowKey, float> sums;
  for (const ShardPart& part : contribute.parts) {
    const Seen seen = Read(part, pool);
    EXPECT_EQ(seen.params.flags, wire::kParamTwoPhase);
    EXPECT_EQ(seen.params.step, 4u);
    EXPECT_EQ(seen.bitmap.size(), 5u);
    for (size_t k = 0; k < seen.keys.size(); ++k) sums[seen.keys[k]] = Floats(seen.values)[2 * k];
  }
  EXPECT_EQ(sums, (std::map<RowKey, float>{{5, 15}, {7, 7}, {9, 3}}));
  // Without values: the marks alone, whatever was given.
  input.not_finite = true;
  const Request bare = PrepareRound(input, pool).value();
  for (const ShardPart& part : bare.parts) {
    const Seen seen = Read(part, pool);
    EXPECT_EQ(seen.header.type, wire::FrameType::kDone);
    EXPECT_EQ(seen.params.flags, wire::kParamTwoPhase | wire::kParamNotFinite);
  }
  PartitionInput decision{.state = &state, .table = &table};
  decision.phase = RoundPhase::kDecide;
  decision.hyper.step = 4;
  decision.scale = 0.25;
  const Request decide = PrepareRound(decision, pool).value();
  EXPECT_EQ(decide.kind, Request::Kind::kDecide);
  EXPECT_EQ(decide.parts.size(), 6u);
  for (const ShardPart& part : decide.parts) {
    const Seen seen = Read(part, pool);
    EXPECT_EQ(seen.params.flags, wire::kParamDecide);
    EXPECT_EQ(seen.params.scale, 0.25);
    EXPECT_TRUE(seen.entries.empty());
    EXPECT_EQ(ExpectedBytes(part), 0u);
  }
}

TEST_F(RowCalls, WhatAnOptimizerCantWorkWith) {
  const auto refusal = [&](OptimizerKind kind, const Hyper& hyper) {
    const wire::TableInfo table = Table(Mode::kAsync, kind);
    PartitionInput input = Input(table);
    input.hyper = hyper;
    return Text(PreparePush(input, pool));
  };
  using enum OptimizerKind;
  EXPECT_NE(refusal(kSparseAdam, {}).find("has step 0: SparseAdam's"), std::string::npos);
  EXPECT_EQ(refusal(kSparseAdam, {.step = 1}), "");
  EXPECT_NE(refusal(kSparseAdam, {.weight_decay = 0.1, .step = 1}).find("SparseAdam has none"),
            std::string::npos);
  EXPECT_NE(refusal(kRowwiseAdagrad, {.weight_decay = 0.1}).find("row-wise Adagrad has none"),
            std::string::npos);
  EXPECT_EQ(refusal(kRowwiseAdagrad, {}), "");
  EXPECT_NE(refusal(kFtrl, {.lr = 0}).find("FTRL divides by it"), std::string::npos);
  EXPECT_NE(refusal(kFtrl, {.lr = 1e-60}).find("FTRL divides by it"), std::string::npos);
  EXPECT_NE(refusal(kFtrl, {.beta1 = -1}).find("negative l1"), std::string::npos);
  EXPECT_NE(refusal(kFtrl, {.weight_decay = -1}).find("negative l1"), std::string::npos);
  EXPECT_NE(refusal(kFtrl, {.beta2 = -1}).find("negative l1"), std::string::npos);
  EXPECT_EQ(refusal(kFtrl, {.weight_decay = 1, .beta1 = 1, .beta2 = 1}), "");

  // Who has no rows, or assigns, need not know the step.
  const wire::TableInfo table = Table(Mode::kSync, kSparseAdam);
  PartitionInput done{.state = &state, .table = &table};
  EXPECT_TRUE(PrepareRound(done, pool).ok());
  PartitionInput decide{.state = &state, .table = &table};
  decide.phase = RoundPhase::kDecide;
  EXPECT_TRUE(PrepareRound(decide, pool).ok());
  EXPECT_FALSE(PrepareRound(Input(table), pool).ok());
  PartitionInput assign = Input(table);
  assign.op = PushOp::kAssign;
  EXPECT_TRUE(PreparePush(assign, pool).ok());
  // Nor who has joined: it agrees to what the others say.
  PartitionInput joined{.state = &state, .table = &table, .joined = true};
  joined.hyper.weight_decay = 0.5;
  EXPECT_TRUE(PrepareRound(joined, pool).ok());
}

TEST_F(RowCalls, OnlyValuesAreHeldToTheirStorage) {
  wire::TableInfo table = Table(Mode::kAsync, OptimizerKind::kAdagrad);
  table.spec.storage = Storage::kFloat16;
  table.spec.non_finite = NonFinitePolicy::kAllow;
  PartitionInput input = Input(table);
  std::vector<float> large(input.values.bytes() / sizeof(float), 1e6f);
  input.values = std::as_bytes(std::span<const float>(large));
  input.op = PushOp::kAssign;
  EXPECT_FALSE(PreparePush(input, pool).ok());
  input.column = 1;  // the optimizer's state stays float32
  EXPECT_TRUE(PreparePush(input, pool).ok());
  input.column = 0;
  std::fill(large.begin(), large.end(), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(PreparePush(input, pool).ok()) << "the table allows it, and float16 has one";
}

}  // namespace
}  // namespace cairn::client

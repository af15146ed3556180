// Gradients of tables that travel in two bytes: what is in the frames, and what is refused.
#include "client/partition/rounding.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "client/partition/partition.h"
#include "client/partition/partition_reader_testing.h"
#include "wire/coding.h"

namespace cairn::client {
namespace {

class Rounding : public testing::TestWithParam<Mode> {
 protected:
  wire::TableInfo Table(WireFormat format) const {
    wire::TableInfo info;
    info.id = TableId{3};
    info.spec = {.name = "w", .mode = GetParam(), .size = 3000};
    info.spec.wire = format;
    return info;
  }
  Result<Request> Prepare(const PartitionInput& input) {
    return IsNumbered(input.table->spec, input.op) ? PreparePush(input, pool_) : PrepareRound(input, pool_);
  }
  std::vector<float> Values(const Request& request) {
    std::vector<float> all;
    for (const ShardPart& part : request.parts) {
      const std::vector<float> floats = Floats(Read(part, pool_).values);
      all.insert(all.end(), floats.begin(), floats.end());
    }
    return all;
  }

  BufferPool pool_;
  Random random_{1};
  const wire::ClusterState state_ = StateOf(1, 1, 4, random_);
};

TEST_P(Rounding, GradientsAreRoundedAndFramesSaySo) {
  const std::vector<float> gradient(3000, 0.1f);
  for (WireFormat format : {WireFormat::kFloat16, WireFormat::kBfloat16}) {
    const wire::TableInfo table = Table(format);
    float rounded = 0.1f;
    ASSERT_TRUE(
        wire::RoundValues(format, wire::TooLarge::kInfinite, std::as_writable_bytes(std::span(&rounded, 1))));
    ASSERT_NE(rounded, 0.1f);
    const Result<Request> request =
        Prepare({.state = &state_, .table = &table, .values = std::as_bytes(std::span(gradient))});
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(Values(*request), std::vector<float>(3000, rounded));
    for (const ShardPart& part : request->parts) {
      EXPECT_FALSE(part.borrowed);  // the caller's array has other values
      if (part.frame->values.empty()) continue;
      EXPECT_NE(wire::CodeFrame(*part.frame, pool_), nullptr);
    }
  }
}

TEST_P(Rounding, WhatIsRoundedIsNotTheCallersArray) {
  const std::vector<float> gradient(3000, 0.1f);
  const wire::TableInfo table = Table(WireFormat::kBfloat16);
  PartitionInput input{.state = &state_, .table = &table, .values = std::as_bytes(std::span(gradient))};
  input.borrow = true;
  const Result<Request> request = Prepare(input);
  ASSERT_TRUE(request.ok());
  for (const ShardPart& part : request->parts) EXPECT_FALSE(part.borrowed);
  for (float value : Values(*request)) ASSERT_EQ(value, 0.10009765625f);
  EXPECT_EQ(gradient, std::vector<float>(3000, 0.1f));
}

TEST_P(Rounding, OtherTablesAndAssignsAreNot) {
  const std::vector<float> values(3000, 0.1f);
  for (WireFormat format : {WireFormat::kPlain, WireFormat::kLz4, WireFormat::kBfloat16}) {
    const wire::TableInfo table = Table(format);
    PartitionInput input{.state = &state_, .table = &table, .values = std::as_bytes(std::span(values))};
    if (format == WireFormat::kBfloat16) input.op = PushOp::kAssign;
    const Result<Request> request = Prepare(input);
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(Values(*request), values);
  }
}

TEST_P(Rounding, WhatIsTooLargeIsRefused) {
  wire::TableInfo table = Table(WireFormat::kFloat16);
  std::vector<float> gradient(3000, 1.0f);
  gradient[1234] = -70000.0f;
  PartitionInput input{.state = &state_, .table = &table, .values = std::as_bytes(std::span(gradient))};
  const Result<Request> refused = Prepare(input);
  EXPECT_EQ(refused.status().code(), Code::kNotFinite);
  EXPECT_NE(refused.status().message().find("element 1234"), std::string::npos);
  EXPECT_NE(refused.status().message().find("65504"), std::string::npos);

  table.spec.segments = {1000, 2000, 3000};
  const std::byte others{5};  // not the segment that it is in
  input.mask = {&others, 1};
  EXPECT_TRUE(Prepare(input).ok());
  input.mask = {};
  table.spec.wire = WireFormat::kBfloat16;
  EXPECT_TRUE(Prepare(input).ok());
  table.spec.wire = WireFormat::kFloat16;
  table.spec.non_finite = NonFinitePolicy::kAllow;
  const Result<Request> allowed = Prepare(input);
  ASSERT_TRUE(allowed.ok());
  size_t infinite = 0;
  for (float value : Values(*allowed)) infinite += value == -std::numeric_limits<float>::infinity();
  EXPECT_EQ(infinite, 1u);
}

TEST_P(Rounding, RowsAreSummedFirst) {
  wire::TableInfo table = Table(WireFormat::kFloat16);
  table.spec.kind = TableKind::kSparse;
  table.spec.size = 0;
  table.spec.dim = 2;
  const std::vector<RowKey> keys = {8, 8};
  std::vector<float> rows = {2048.0f, 1.0f, 1.0f, 2.0f};  // 2049 is between two halves
  PartitionInput input{
      .state = &state_, .table = &table, .keys = keys, .values = std::as_bytes(std::span(rows))};
  Result<Request> request = Prepare(input);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(Values(*request), (std::vector<float>{2048.0f, 3.0f}));
  rows = {40000.0f, 1.0f, 40000.0f, 1.0f};
  request = Prepare(input);
  EXPECT_EQ(request.status().code(), Code::kNotFinite);
  EXPECT_NE(request.status().message().find("repeat"), std::string::npos);
}

TEST_P(Rounding, TheLargestAreChosenWhereTheValuesCount) {
  wire::TableInfo table = Table(WireFormat::kTopK);
  table.spec.size = 4;
  table.spec.wire_topk = 0.25f;
  const auto feedback = ErrorFeedback::For(table.spec);
  const std::vector<float> gradient = {1.0f, 2.0f, 3.0f, 4.0f};
  PartitionInput input{.state = &state_, .table = &table, .values = std::as_bytes(std::span(gradient))};
  PartitionInput weightless = input;
  weightless.weight = 0;
  EXPECT_FALSE(ChooseLargest(feedback.get(), weightless));
  PartitionInput assigned = input;
  assigned.op = PushOp::kAssign;
  EXPECT_FALSE(ChooseLargest(feedback.get(), assigned));
  EXPECT_FALSE(ChooseLargest(nullptr, input));
  EXPECT_EQ(input.values.whole().data(), std::as_bytes(std::span(gradient)).data());
  auto chosen = ChooseLargest(feedback.get(), input);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(input.values.whole().data(), chosen.values().data());
  EXPECT_EQ(Floats(chosen.values()), (std::vector<float>{0, 0, 0, 4.0f}));
}

INSTANTIATE_TEST_SUITE_P(Modes, Rounding, testing::Values(Mode::kAsync, Mode::kSync));

}  // namespace
}  // namespace cairn::client

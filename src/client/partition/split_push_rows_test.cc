// A large push of rows is handed over in parts: together they are the push as it would be in one, and
// a push that is refused hands over nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "client/partition/partition.h"
#include "client/partition/partition_reader_testing.h"
#include "wire/data.h"

namespace cairn::client {
namespace {

constexpr uint32_t kDim = 16;
using Rows = std::map<std::pair<uint32_t, RowKey>, std::vector<float>>;  // by slot and key

wire::TableInfo Table() { return {TableId{3}, {.name = "e", .kind = TableKind::kSparse, .dim = kDim}, {}}; }

void CollectRows(const Request& request, Rows* rows) {
  for (const ShardPart& part : request.parts) {
    const std::span<const std::byte> body = part.frame->head.bytes().subspan(sizeof(wire::FrameHeader));
    std::vector<std::byte> whole(body.begin(), body.end());
    for (std::span<const std::byte> piece : part.frame->values)
      whole.insert(whole.end(), piece.begin(), piece.end());
    Buffer aligned = BufferPool().Get(whole.size());
    std::memcpy(aligned.data(), whole.data(), whole.size());
    const auto push = wire::DecodePush(part.frame->header(), aligned.bytes());
    ASSERT_TRUE(push.ok()) << push.status().ToString();
    size_t at = 0;
    for (const wire::SlotEntry& entry : push->entries) {
      for (uint32_t i = 0; i < entry.count; ++i, ++at) {
        std::vector<float> row(kDim);
        std::memcpy(row.data(), push->values.data() + at * kDim * 4, kDim * 4);
        EXPECT_TRUE(rows->insert({{entry.slot, push->keys[at]}, row}).second);
      }
    }
  }
}

struct Case {
  Case(uint64_t seed, size_t keys_wanted, size_t different) : random(seed), state(StateOf(2, 2, 64, random)) {
    for (size_t i = 0; i < keys_wanted; ++i) keys.push_back(Mix64(i % different));
    values.resize(keys.size() * kDim);
    for (float& value : values) value = static_cast<float>(random.Between(-1000, 1000)) / 7;
  }
  PartitionInput input() {
    PartitionInput made{.state = &state, .table = &table, .keys = keys};
    made.values = std::as_bytes(std::span<const float>(values));
    return made;
  }
  Random random;
  wire::ClusterState state;
  wire::TableInfo table = Table();
  std::vector<RowKey> keys;
  std::vector<float> values;
};

void ExpectTheWholePush(const PartitionInput& input, size_t different) {
  BufferPool pool;
  Rows whole, parts;
  auto request = PreparePush(input, pool);
  ASSERT_TRUE(request.ok());
  CollectRows(*request, &whole);
  EXPECT_EQ(whole.size(), different);
  size_t early = 0;
  auto last = PreparePush(input, pool, [&](Request part) {
    ++early;
    EXPECT_FALSE(part.parts.empty());
    CollectRows(part, &parts);
    // Whoever takes it may prepare something else on the same thread.
    Case other(2, 20'000, 19'000);
    EXPECT_TRUE(PreparePush(other.input(), pool).ok());
  });
  ASSERT_TRUE(last.ok());
  EXPECT_FALSE(last->parts.empty());
  CollectRows(*last, &parts);
  EXPECT_GT(early, 4u);
  EXPECT_EQ(parts, whole);
}

TEST(SplitPushOfRows, TogetherTheyAreTheWholePush) {
  Case one(1, 40'000, 40'000);
  ExpectTheWholePush(one.input(), 40'000);
}

// In the order of the array: sums of floats to the bit.
TEST(SplitPushOfRows, RepeatedKeysAreSummed) {
  Case one(5, 40'000, 11'000);
  ExpectTheWholePush(one.input(), 11'000);
}

TEST(SplitPushOfRows, OfAnAssignTheLastOneCounts) {
  Case one(6, 40'000, 11'000);
  PartitionInput input = one.input();
  input.op = PushOp::kAssign;
  ExpectTheWholePush(input, 11'000);
}

TEST(SplitPushOfRows, ARefusedPushHandsOverNothing) {
  BufferPool pool;
  Case one(3, 40'000, 40'000);
  one.values.back() = std::numeric_limits<float>::quiet_NaN();
  auto last = PreparePush(one.input(), pool, [](Request) { ADD_FAILURE() << "handed over"; });
  EXPECT_EQ(last.status().code(), Code::kNotFinite);
}

// Slot by slot the servers would refuse it, and keep the rest.
TEST(SplitPushOfRows, AnAssignBeyondItsStorageSendsNothing) {
  BufferPool pool;
  Case one(7, 40'000, 40'000);
  one.table.spec.storage = Storage::kFloat16;
  PartitionInput input = one.input();
  input.op = PushOp::kAssign;
  ExpectTheWholePush(input, 40'000);
  one.values.back() = -65505;
  auto last = PreparePush(input, pool, [](Request) { ADD_FAILURE() << "handed over"; });
  EXPECT_EQ(last.status().code(), Code::kInvalidArgument);
  EXPECT_NE(last.status().message().find("element 639999"), std::string::npos) << last.status().ToString();
  input.op = PushOp::kUpdate;  // a gradient may be large
  ExpectTheWholePush(input, 40'000);
}

// Which shows only when they are made.
TEST(SplitPushOfRows, SumsThatMayOverflowGoInOne) {
  BufferPool pool;
  Case one(4, 40'000, 39'999);  // the last key is the first
  for (uint32_t i = 0; i < kDim; ++i)
    one.values[i] = one.values[one.values.size() - 1 - i] = std::numeric_limits<float>::max();
  auto last = PreparePush(one.input(), pool, [](Request) { ADD_FAILURE() << "handed over"; });
  EXPECT_EQ(last.status().code(), Code::kNotFinite);
}

TEST(SplitPushOfRows, WhereAnythingIsAllowedNothingIsLookedAt) {
  BufferPool pool;
  Case one(8, 40'000, 40'000);
  one.table.spec.non_finite = NonFinitePolicy::kAllow;
  one.values.back() = std::numeric_limits<float>::quiet_NaN();
  size_t early = 0;
  EXPECT_TRUE(PreparePush(one.input(), pool, [&](Request) { ++early; }).ok());
  EXPECT_GT(early, 4u);
}

// What is rounded on the way is known to be finite only when all of it is rounded.
TEST(SplitPushOfRows, RoundedRowsGoInOne) {
  BufferPool pool;
  Case one(9, 40'000, 40'000);
  one.table.spec.wire = WireFormat::kBfloat16;
  for (float& value : one.values) value = 1.0009765625f;
  const auto all = PreparePush(one.input(), pool, [](Request) { ADD_FAILURE() << "handed over"; });
  ASSERT_TRUE(all.ok());
  Rows rows;
  CollectRows(*all, &rows);
  ASSERT_EQ(rows.size(), 40'000u);
  EXPECT_EQ(rows.begin()->second, std::vector<float>(kDim, 1.0f));
}

}  // namespace
}  // namespace cairn::client

// Once warm, a push and a pull take no memory from the heap: neither while they are prepared, nor
// on their way through the core, nor when they are answered. Counted by replacing operator new for
// this test program; what the test itself does is not counted.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/counting_new_testing.h"
#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

// Warm is who has been through the first block of every queue.
constexpr int kWarm = 200, kCounted = 200;

// One server with one thread: a request is one frame.
class AllocationTest : public ::testing::Test {
 protected:
  void Begin(TableSpec spec) {
    table = c.AddTable(std::move(spec));
    c.StartAll();
    c.network.keeps_last = true;
    c.acknowledged.reserve(100'000);
    c.reads.reserve(100'000);
  }
  // Prepares, submits and has it answered, many times.
  template <class Prepare>
  void ExpectNone(const Prepare& prepare, size_t reply_bytes) {
    if (!kRecycles) GTEST_SKIP() << "a sanitizer sees every block";
    long counted = 0;
    for (int i = 0; i < kWarm + kCounted; ++i) {
      int ends = 0;
      long before = allocations;
      Request request = prepare();
      request.deadline_us = c.now + 1'000'000;
      const std::pair<long, long> captured{1, 2};  // as much as a driver's
      request.done = [&ends, captured, more = captured](const Status& status) {
        ends += status.ok() && captured == more ? 1 : 0;
      };
      c.core->Submit(std::move(request), c.now);
      long used = allocations - before;
      ASSERT_NE(c.network.last, nullptr);
      wire::InFrame answer = AnswerTo(*std::exchange(c.network.last, nullptr), reply_bytes);
      before = allocations;
      c.core->OnMessage(c.conn_of.at({0, 0}), answer, c.now);
      used += allocations - before;
      ASSERT_EQ(ends, 1);
      if (i >= kWarm) counted += used;
    }
    EXPECT_EQ(counted, 0) << "in " << kCounted << " requests";
  }
  wire::InFrame AnswerTo(wire::Frame& request, size_t reply_bytes) {
    const wire::FrameHeader& header = request.header();
    wire::FramePtr reply;
    if (header.type == wire::FrameType::kPush) {
      reply = wire::EncodePushReply(header, {}, "", c.pool);
    } else {
      std::vector<wire::SlotEntry> entries;
      for (wire::SlotEntry entry : wire::MutableEntries(request))
        entries.push_back({entry.slot, entry.count, Position::Of(1, 1).packed});
      wire::DataParts parts;
      parts.type = wire::FrameType::kPullReply;
      parts.request_id = header.request_id;
      parts.incarnation = Incarnation{header.incarnation};
      parts.table = table.id;
      parts.entries = entries;
      parts.owned = c.pool.Get(reply_bytes);
      reply = wire::EncodeData(std::move(parts), c.pool);
    }
    return std::move(wire::Parse(wire::Flatten(*reply, c.pool).bytes(), wire::kMaxBodyBytes, c.pool).value());
  }
  PartitionInput Input() { return {.state = c.core->state().get(), .table = &table}; }

  FakeCluster c{1, 1, 16};
  wire::TableInfo table;
};

TEST_F(AllocationTest, DensePushAndPull) {
  Begin({.name = "a dense table of the test", .size = 1024});
  const std::vector<float> gradient(1024, 1.0f);
  std::vector<float> out(1024);
  const auto plan = std::make_shared<const DensePlan>(table, *c.core->state());
  for (const bool borrow : {false, true}) {
    ExpectNone(
        [&] {
          PartitionInput input = Input();
          input.values = std::as_bytes(std::span(gradient));
          input.borrow = borrow;
          input.plan = plan;
          return PreparePush(input, c.pool).value();
        },
        0);
  }
  ExpectNone(
      [&] {
        PartitionInput input = Input();
        input.out = std::as_writable_bytes(std::span(out));
        input.plan = plan;
        return PreparePull(input, c.pool).value();
      },
      out.size() * sizeof(float));
}

TEST_F(AllocationTest, SparsePushAndPull) {
  Begin({.name = "a sparse table of the test", .kind = TableKind::kSparse, .dim = 4});
  std::vector<RowKey> keys(200);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 7919 % 150;  // some of them twice
  const std::vector<float> rows(keys.size() * 4, 1.0f);
  std::vector<float> out(rows.size());
  ExpectNone(
      [&] {
        PartitionInput input = Input();
        input.keys = keys;
        input.values = std::as_bytes(std::span(rows));
        return PreparePush(input, c.pool).value();
      },
      0);
  ExpectNone(
      [&] {
        PartitionInput input = Input();
        input.keys = keys;
        input.out = std::as_writable_bytes(std::span(out));
        return PreparePull(input, c.pool).value();
      },
      out.size() * sizeof(float));
}

}  // namespace
}  // namespace cairn::client

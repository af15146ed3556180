// What a dense push and pull cost on the wire: the values, and for each frame a fixed head and 16 bytes a
// slot. No keys, ever: both sides compute where an element lies (DenseLayout), so there is no list of
// keys that could be left out of a repeated push.
#include <gtest/gtest.h>

#include <vector>

#include "client/partition/partition_reader_testing.h"

namespace cairn::client {
namespace {

constexpr uint32_t kSlots = 256;

struct Sent {
  size_t bytes = 0, frames = 0, entries = 0, keys = 0, values = 0;
  bool operator==(const Sent&) const = default;
};

Sent Count(const Request& request, BufferPool& pool) {
  Sent sent;
  for (const ShardPart& part : request.parts) {
    const Seen seen = Read(part, pool);
    sent.bytes += wire::Flatten(*part.frame, pool).size();
    sent.frames += 1;
    sent.entries += seen.entries.size();
    sent.keys += seen.keys.size();
    sent.values += seen.values.size();
  }
  return sent;
}

class DenseBytes : public ::testing::TestWithParam<Mode> {
 protected:
  Sent Push(uint64_t elements, bool changed = false) {
    const wire::TableInfo table{TableId{1}, {.name = "w", .mode = GetParam(), .size = elements}, {}};
    const std::vector<float> values(elements, changed ? 2.0f : 1.0f);
    const PartitionInput input{.state = &state_, .table = &table, .values = std::as_bytes(std::span(values))};
    const bool sync = GetParam() == Mode::kSync;
    return Count((sync ? PrepareRound(input, pool_) : PreparePush(input, pool_)).value(), pool_);
  }
  Random random_{1};
  const wire::ClusterState state_ = StateOf(2, 2, kSlots, random_);
  BufferPool pool_;
};

TEST_P(DenseBytes, APushHasNoKeysAndAFixedOverhead) {
  for (const uint64_t elements : {1'000u, 62'006u, 493'201u, 4'000'000u}) {
    const Sent sent = Push(elements);
    EXPECT_EQ(sent.keys, 0u);
    EXPECT_EQ(sent.values, elements * sizeof(float));
    EXPECT_LE(sent.entries, kSlots);
    // Header, parameters, the bitmap of a mark, and what aligns the values.
    const size_t head = sizeof(wire::FrameHeader) + sizeof(wire::PushParams) + kSlots / 8 + 64;
    EXPECT_LE(sent.bytes - sent.values, sent.frames * head + sent.entries * sizeof(wire::SlotEntry));
    if (elements > 400'000) {
      EXPECT_LT(sent.bytes - sent.values, sent.values / 100);
    }
  }
}

TEST_P(DenseBytes, ARepeatedPushIsAsLargeAsTheFirst) { EXPECT_EQ(Push(62'006), Push(62'006, true)); }

INSTANTIATE_TEST_SUITE_P(Modes, DenseBytes, ::testing::Values(Mode::kSync, Mode::kAsync),
                         [](const auto& tested) { return tested.param == Mode::kSync ? "sync" : "async"; });

TEST(DensePullBytes, AreThoseOfSlotsAndNoKeys) {
  Random random(1);
  const wire::ClusterState state = StateOf(2, 2, kSlots, random);
  BufferPool pool;
  const wire::TableInfo table{TableId{1}, {.name = "w", .mode = Mode::kAsync, .size = 493'201}, {}};
  std::vector<float> out(493'201);
  const PartitionInput input{.state = &state, .table = &table, .out = std::as_writable_bytes(std::span(out))};
  const Sent sent = Count(PreparePull(input, pool).value(), pool);
  EXPECT_EQ(sent.keys, 0u);
  EXPECT_LE(sent.bytes,
            sent.frames * (sizeof(wire::FrameHeader) + 64) + sent.entries * sizeof(wire::SlotEntry));
}

}  // namespace
}  // namespace cairn::client

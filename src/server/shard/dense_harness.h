// Frames for dense tables under test: five slots of 1024 elements, filled with one value each.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "server/shard/shard_harness.h"

namespace cairn::server {

struct DenseHarness : ShardHarness {
  static constexpr uint32_t kElements = 1024;
  using ShardHarness::ShardHarness;

  static TableSpec Dense(Mode mode, OptimizerKind optimizer = OptimizerKind::kSgd) {
    TableSpec spec;
    spec.name = "model";
    spec.mode = mode;
    spec.optimizer = optimizer;
    spec.size = uint64_t{kSlots} * kElements;
    return spec;
  }

  // Whole slots of one value each, of the segments of the mask.
  wire::FramePtr Fill(uint32_t rank, wire::FrameType type, TableId table, uint64_t round,
                      const std::vector<Row>& slots, const RoundOptions& options,
                      std::vector<std::byte> mask = {}) {
    wire::DataParts parts = Parts(rank, type, table);
    parts.round = Round{round};
    std::vector<wire::SlotEntry> entries;
    std::vector<std::byte> bitmap(1);
    for (const Row& row : slots) entries.push_back({row.slot, kElements, row.number});
    if (type != wire::FrameType::kDone) {
      parts.owned = pool.Get(slots.size() * kElements * sizeof(float));
      auto* out = reinterpret_cast<float*>(parts.owned.data());
      for (const Row& row : slots) out = std::fill_n(out, kElements, row.value);
    }
    if (options.done) {
      for (uint32_t slot : *options.done) bitmap[0] |= std::byte{1} << slot;
      parts.done_bitmap = bitmap;
      if (type == wire::FrameType::kContribute) parts.flags |= wire::kFlagDone;
    }
    if (options.pull_after) parts.flags |= wire::kFlagPullAfter;
    const wire::PushParams params = options.params();
    parts.params = &params;
    parts.entries = entries;
    parts.mask = mask;
    return wire::EncodeData(std::move(parts), pool);
  }
  wire::FramePtr PushDense(uint32_t rank, TableId table, const std::vector<Row>& slots,
                           const RoundOptions& options = {}, std::vector<std::byte> mask = {}) {
    return Fill(rank, wire::FrameType::kPush, table, 0, slots, options, std::move(mask));
  }
  // With the done mark that names these slots.
  wire::FramePtr GiveDense(uint32_t rank, TableId table, uint64_t round, const std::vector<Row>& slots,
                           RoundOptions options = {}, std::vector<std::byte> mask = {}) {
    options.done.emplace();
    for (const Row& row : slots) options.done->push_back(row.slot);
    return Fill(rank, wire::FrameType::kContribute, table, round, slots, options, std::move(mask));
  }
  wire::FramePtr PullDense(uint32_t rank, TableId table, std::vector<uint32_t> slots, uint8_t column = 0,
                           uint16_t flags = 0) {
    wire::DataParts parts = Parts(rank, wire::FrameType::kPull, table);
    parts.flags = flags;
    std::vector<wire::SlotEntry> entries;
    for (uint32_t slot : slots) entries.push_back({slot, kElements, column});
    parts.entries = entries;
    return wire::EncodeData(std::move(parts), pool);
  }

  // The next answer; of values, the one that fills each slot.
  std::string DenseAnswer(uint32_t rank) {
    auto frame = Next(rank);
    const bool values =
        frame && (frame->header.type == wire::FrameType::kPullReply ||
                  (frame->header.type == wire::FrameType::kRoundReply && frame->header.entry_count > 0 &&
                   (frame->header.flags & (wire::kFlagReport | wire::kFlagRefused)) == 0));
    if (!values) return Describe(frame);
    auto view = wire::DecodeValues(frame->header, frame->body());
    std::string text = "values";
    const auto* at = reinterpret_cast<const float*>(view->values.data());
    for (const wire::SlotEntry& entry : view->entries) {
      EXPECT_TRUE(std::all_of(at, at + entry.count, [&](float value) { return value == *at; }));
      text += " " + Short(*at);
      at += entry.count;
    }
    return text;
  }
  // "values …" of a column of slots 0 to 3.
  std::string Column(TableId table, uint8_t column = 0) {
    Deliver(0, PullDense(0, table, {0, 1, 2, 3}, column));
    return DenseAnswer(0);
  }
};

}  // namespace cairn::server

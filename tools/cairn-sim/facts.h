// What the workers have said, read off the wire when a frame is sent and independent of what any
// role remembers: every numbered push, every contribution and mark. Checkers compare with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::sim {

// One slot's part of a push or contribution.
struct Part {
  TableId table;
  std::vector<RowKey> keys;
  std::vector<std::byte> values;
  std::vector<std::byte> mask;  // of segments; empty: all
  wire::PushParams params;
  uint64_t request = 0;
  Hyper hyper() const { return params.hyper(); }
  PushOp op() const { return static_cast<PushOp>(params.op); }
};
// What a worker wants to become of a round in two phases.
struct DecisionSaid {
  bool skip = false;
  double scale = 1;
  Hyper hyper;
  // The scale of a skip means nothing.
  bool operator==(const DecisionSaid& other) const {
    return skip == other.skip && (skip || scale == other.scale) && hyper == other.hyper;
  }
};
// All that a worker has said about one round of a table.
struct RoundSaid {
  wire::PushParams params;  // of its contribution and mark; those of a joined worker mean nothing
  bool done_said = false;
  bool joined = false;
  std::vector<std::byte> bitmap;
  std::map<uint32_t, Part> parts;  // by slot
  std::optional<DecisionSaid> decision;
  double weight() const { return joined ? 0 : params.weight; }
  bool two_phase() const { return !joined && params.has(wire::kParamTwoPhase); }
  bool not_finite() const { return !joined && params.has(wire::kParamNotFinite); }
  bool Touches(uint32_t slot) const {
    return slot / 8 < bitmap.size() && (static_cast<unsigned>(bitmap[slot / 8]) >> (slot % 8) & 1) != 0;
  }
};

class Facts {
 public:
  using Complain = std::function<void(const std::string&)>;
  explicit Facts(Complain complain) : complain_(std::move(complain)) {}

  // A frame of type kPush, kContribute or kDone is being sent. Returns the bytes of numbered pushes
  // in it that were never sent before.
  uint64_t OnSent(const wire::FrameHeader& header, const wire::PushView& push);

  using Numbered = std::map<uint64_t, Part>;  // by sequence number
  const Part* Push(Incarnation incarnation, SlotId slot, Seq seq) const;
  const std::map<std::pair<uint64_t, uint32_t>, Numbered>& pushes() const { return pushes_; }
  const RoundSaid* Said(Incarnation incarnation, TableId table, Round round) const;

 private:
  uint64_t OnNumbered(const wire::FrameHeader& header, const wire::PushView& push);
  void OnRound(const wire::FrameHeader& header, const wire::PushView& push);
  void OnDecision(RoundSaid& said, const wire::PushParams& params, const std::string& who);

  Complain complain_;
  std::map<std::pair<uint64_t, uint32_t>, Numbered> pushes_;  // by (incarnation, slot)
  std::map<std::tuple<uint64_t, uint32_t, uint64_t>, RoundSaid> rounds_;
};

// Calls each(entry, keys, values) for every slot's part of a push or of a reply.
template <class Each>
void ForEachPart(std::span<const wire::SlotEntry> entries, std::span<const uint64_t> keys,
                 std::span<const std::byte> values, Each&& each) {
  uint64_t units = 0;
  for (const wire::SlotEntry& e : entries) units += e.count;
  const size_t unit_bytes = units == 0 ? 0 : values.size() / units;
  size_t at = 0;
  for (const wire::SlotEntry& e : entries) {
    each(e, keys.empty() ? keys : keys.subspan(at, e.count),
         values.subspan(at * unit_bytes, e.count * unit_bytes));
    at += e.count;
  }
}

}  // namespace cairn::sim

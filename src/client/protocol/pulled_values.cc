#include "client/protocol/pulled_values.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/planted.h"
#include "client/partition/scatter.h"

namespace cairn::client {
namespace {

const std::byte* TargetOf(const ShardPart& part) {
  if (part.out != nullptr || part.into.empty()) return part.out;
  return part.into[0].data();
}

}  // namespace

ShardLink::Verdict PulledValues::Take(const RequestRecord& record, const Outgoing& frame,
                                      const wire::ValuesView& values) {
  const ShardPart& part = record.request.parts[frame.part];
  const size_t expected = part.keys == nullptr ? ExpectedBytes(part) : KeyBytes(values.entries);
  if (record.ended || (expected == 0 && part.keys == nullptr)) return ShardLink::Verdict::kTaken;
  const std::span<const wire::SlotEntry> asked = wire::MutableEntries(*frame.frame);
  const bool same = std::equal(asked.begin(), asked.end(), values.entries.begin(), values.entries.end(),
                               [](const auto& a, const auto& b) { return a.slot == b.slot; });
  if (!same || values.values.size() != expected) return ShardLink::Verdict::kMalformed;
  if (const auto verdict = CheckPositions(record, part, values); verdict != ShardLink::Verdict::kTaken)
    return verdict;
  Scatter(part, values.values);
  return ShardLink::Verdict::kTaken;
}

// A node that has been away may answer from an older time: reads never go back.
ShardLink::Verdict PulledValues::CheckPositions(const RequestRecord& record, const ShardPart& part,
                                                const wire::ValuesView& values) {
  for (const wire::SlotEntry& entry : values.entries) {
    if (entry.number < book_.seen[entry.slot] && !CAIRN_BUG(kStaleRead)) return ShardLink::Verdict::kStale;
  }
  for (const wire::SlotEntry& entry : values.entries) {
    uint64_t& seen = book_.seen[entry.slot];
    seen = std::max(seen, entry.number);
    if (observer_ != nullptr) {
      observer_->OnRead(SlotId{entry.slot}, scheduler_.incarnation(), record.request.table,
                        Position{entry.number}, TargetOf(part));
    }
  }
  return ShardLink::Verdict::kTaken;
}

}  // namespace cairn::client

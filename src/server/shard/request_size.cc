#include "server/shard/request_size.h"

#include <algorithm>

#include "wire/cluster_state.h"
#include "wire/data.h"

namespace cairn::server {
namespace {

// Parameters, bitmap, mask, and the gaps between sections.
constexpr uint64_t kFixedBytes =
    sizeof(wire::PushParams) + wire::kMaxSlots / 8 + wire::kMaxSegments / 8 + 8 * wire::kAlignment;

uint64_t MostValueBytes(const wire::FrameHeader& header, const TableSpec& spec) {
  if (header.type != wire::FrameType::kPush && header.type != wire::FrameType::kContribute) return 0;
  const uint64_t element = spec.element == ElementType::kFloat32 ? 4 : 8;
  return element * (spec.kind == TableKind::kDense ? spec.size : uint64_t{header.key_count} * spec.dim);
}

}  // namespace

uint64_t MostRequestBytes(const wire::FrameHeader& header, const TableSpec* spec, uint32_t slot_count) {
  switch (header.type) {
    case wire::FrameType::kPush:
    case wire::FrameType::kContribute:
    case wire::FrameType::kDone:
    case wire::FrameType::kPull: break;
    case wire::FrameType::kReplicate: return UINT64_MAX;
    case wire::FrameType::kControl: return kMostUnknownBytes;  // a state, of whatever cluster
    default: return wire::kMaxUnauthenticatedBodyBytes;        // nothing that is for a server
  }
  if (spec == nullptr)
    return (header.flags & wire::kFlagCoded) != 0 ? kMostUnknownBytes : uint64_t{wire::kMaxBodyBytes};
  // Each slot is named once.
  return kFixedBytes + std::min<uint64_t>(header.entry_count, slot_count) * sizeof(wire::SlotEntry) +
         uint64_t{header.key_count} * sizeof(uint64_t) + MostValueBytes(header, *spec);
}

uint64_t MostBackupAnswerBytes(const wire::FrameHeader& header, uint32_t slot_count) {
  if (header.type != wire::FrameType::kReplicaAck) return wire::MostControlBytes(header);
  return uint64_t{slot_count} * sizeof(wire::SlotEntry);
}

}  // namespace cairn::server

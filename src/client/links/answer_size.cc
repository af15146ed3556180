#include "client/links/answer_size.h"

#include <algorithm>

#include "wire/data.h"

namespace cairn::client {
namespace {
// Text, and the gaps between sections.
constexpr uint64_t kFixedBytes = wire::kMaxTextBytes + 2 * wire::kAlignment;
}  // namespace

uint64_t AnswerSize::MostBytes(const wire::FrameHeader& header, std::optional<uint64_t> values,
                               size_t slots) const {
  switch (header.type) {
    case wire::FrameType::kPushReply: return kFixedBytes + slots * sizeof(wire::SlotEntry);
    case wire::FrameType::kRoundReply:
    case wire::FrameType::kPullReply: break;
    default: return wire::MostControlBytes(header);
  }
  const uint64_t each = sizeof(wire::SlotEntry) + sizeof(wire::SlotReport);
  const uint64_t most = kFixedBytes + slots * each + std::max(values.value_or(0), late_values_);
  return values ? most : std::max<uint64_t>(most, wire::kMaxUnauthenticatedBodyBytes);
}

void AnswerSize::LetGo(uint64_t values) { late_values_ = std::max(late_values_, values); }

}  // namespace cairn::client

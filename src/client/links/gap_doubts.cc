#include "client/links/gap_doubts.h"

#include <algorithm>

#include "base/planted.h"

namespace cairn::client {

GapDoubts::Verdict GapDoubts::OnGap(uint32_t slot, uint64_t number, uint64_t answered, bool kept) {
  if (number <= answered && !kept) {
    const bool again = doubt_ && doubt_->slot == slot && number <= doubt_->answered;
    if (again && ++doubt_->seen >= kMost) return Verdict::kLost;
    if (!again) doubt_ = Doubt{slot, answered, 1};
    return Verdict::kReopen;
  }
  // All that was in flight behind the gap gets the same answer: one of them is enough.
  auto [at, first] = rewound_.try_emplace(slot, number);
  if (!first && number <= at->second && !CAIRN_BUG(kRewindPerAnswer)) return Verdict::kObeyed;
  at->second = std::max(at->second, number);
  return Verdict::kRewind;
}

void GapDoubts::OnAnswered(uint32_t slot, uint64_t answered) {
  if (doubt_ && doubt_->slot == slot && answered > doubt_->answered) doubt_.reset();
}

void GapDoubts::ForgetSlot(uint32_t slot) {
  rewound_.erase(slot);
  if (doubt_ && doubt_->slot == slot) doubt_.reset();
}

}  // namespace cairn::client

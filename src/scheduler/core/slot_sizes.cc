#include "scheduler/core/slot_sizes.h"

#include <algorithm>

#include "base/check.h"

namespace cairn::scheduler {
namespace {
constexpr uint64_t kUnknownBytes = UINT64_MAX;
}  // namespace

void SlotSizes::SetCount(size_t slots) {
  CAIRN_CHECK(bytes_.empty() || bytes_.size() == slots);
  bytes_.resize(slots, kUnknownBytes);
}

void SlotSizes::Take(uint32_t slot, uint64_t bytes) {
  bytes = std::min(bytes, kUnknownBytes - 1);
  changed_ |= std::exchange(bytes_.at(slot), bytes) != bytes;
}

SlotBytes SlotSizes::Known() const {
  double sum = 0;
  size_t known = 0;
  for (uint64_t bytes : bytes_) {
    if (bytes == kUnknownBytes) continue;
    sum += static_cast<double>(bytes);
    ++known;
  }
  if (known == 0) return {};
  SlotBytes all = bytes_;
  std::replace(all.begin(), all.end(), kUnknownBytes,
               static_cast<uint64_t>(sum / static_cast<double>(known)));
  return all;
}

uint64_t SlotSizes::Of(uint32_t slot) const {
  return slot < bytes_.size() && bytes_[slot] != kUnknownBytes ? bytes_[slot] : 0;
}

}  // namespace cairn::scheduler

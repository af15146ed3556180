// How many bytes each slot has, as its primary reports. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/placement/placement.h"

namespace cairn::scheduler {

class SlotSizes {
 public:
  // As many as the cluster has; they stay.
  void SetCount(size_t slots);
  void Take(uint32_t slot, uint64_t bytes);

  // What is not known counts as much as the others do on average. Empty: nothing is known.
  SlotBytes Known() const;
  uint64_t Of(uint32_t slot) const;          // 0: not known
  bool changed() const { return changed_; }  // since the last TakeChanged
  bool TakeChanged() { return std::exchange(changed_, false); }

 private:
  std::vector<uint64_t> bytes_;
  bool changed_ = false;
};

}  // namespace cairn::scheduler

#include "server/shard/owned_slots.h"

namespace cairn::server {

uint32_t OwnedSlots::Place(uint32_t slot, uint32_t refusals_kept) {
  uint32_t& local = local_of_[slot];
  if (local == kNotHere) {
    local = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back(SlotId{slot}, refusals_kept);
  }
  return local;
}

}  // namespace cairn::server

#include "server/slots/owned_slots.h"

namespace cairn::server {

uint32_t OwnedSlots::Place(uint32_t slot, uint32_t refusals_kept) {
  CAIRN_CHECK(slot < local_of_.size());
  uint32_t& local = local_of_[slot];
  if (local == kNotHere) {
    local = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back(SlotId{slot}, refusals_kept);
  }
  return local;
}

Status OwnedSlots::CheckOwner(std::span<const wire::SlotEntry> entries, uint64_t state_version,
                              const std::string& name) const {
  for (const wire::SlotEntry& entry : entries) {
    const uint32_t local = LocalOf(entry.slot);
    if (local == kNotHere) [[unlikely]] {
      uint32_t owned = 0;
      for (const OwnedSlot& slot : slots_) owned += slot.owned;
      return {Code::kUnavailable, name + " is not the owner of slot " + std::to_string(entry.slot) +
                                      ": it has " + std::to_string(owned) + " of " +
                                      std::to_string(slot_count()) + " slots"};
    }
    if (state_version < slots_[local].since.value) [[unlikely]] {
      return {Code::kUnavailable, "slot " + std::to_string(entry.slot) + " moved in state " +
                                      std::to_string(slots_[local].since.value) +
                                      ", the frame was made under " + std::to_string(state_version)};
    }
  }
  return Status::Ok();
}

}  // namespace cairn::server

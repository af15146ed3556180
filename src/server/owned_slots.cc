#include "server/owned_slots.h"

namespace cairn::server {

bool OwnedSlots::Update(const wire::ClusterState& state, uint32_t server, uint32_t thread,
                        uint32_t refusals_kept) {
  if (local_of_.size() < state.slots.size()) local_of_.resize(state.slots.size(), kNotHere);
  bool lost = false;
  for (uint32_t s = 0; s < state.slots.size(); ++s) {
    const wire::SlotOwner& owner = state.slots[s];
    const bool ours = owner.server == server && owner.thread == thread;
    uint32_t& local = local_of_[s];
    if (!ours) {
      if (local != kNotHere) {
        slots_[local].owned = false;
        lost = true;
      }
      local = kNotHere;
      continue;
    }
    if (local == kNotHere) {
      local = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back(SlotId{s}, refusals_kept);
    }
    slots_[local].epoch = owner.epoch;
    slots_[local].since = owner.since;
  }
  return lost;
}

}  // namespace cairn::server

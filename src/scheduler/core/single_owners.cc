#include "scheduler/core/single_owners.h"

#include <algorithm>

#include "scheduler/rules/owners.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {

void SingleOwners::Alarm(const wire::ClusterState& state, size_t slots, const std::string& why) {
  if (slots == 0) return;
  alarmed_ = true;
  log_("alarm: " + Count(slots, "partition") + (slots == 1 ? " has" : " have") +
       " only one owner in sync now, since " + why +
       (StayingServers(state) > 1 ? "; another copy is made"
                                  : "; no server is there to take another copy: start one"));
}

void SingleOwners::ClearIfOver(const wire::ClusterState& state) {
  if (!alarmed_) return;
  const bool any = std::any_of(state.slots.begin(), state.slots.end(),
                               [](const wire::SlotOwner& owner) { return InSyncOwners(owner) == 1; });
  if (any) return;
  alarmed_ = false;
  log_("every partition has more than one owner in sync again");
}

size_t NewlySingle(const wire::ClusterState& before, const wire::ClusterState& after) {
  size_t count = 0;
  for (size_t slot = 0; slot < after.slots.size(); ++slot)
    if (InSyncOwners(after.slots[slot]) == 1 && InSyncOwners(before.slots[slot]) > 1) ++count;
  return count;
}

}  // namespace cairn::scheduler

// The work that slots mean to shard threads (rule 53). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/cluster_state.h"

namespace cairn::scheduler {

// Work a second, by slot; both of the same length. Slots beyond it have none.
struct SlotTraffic {
  std::vector<double> pushed, pulled;  // pushed: done by every owner; pulled: by the primary
  std::vector<bool> resting;           // by slot, or empty: has been moved for its traffic lately
  double PushedAt(uint32_t slot) const { return slot < pushed.size() ? pushed[slot] : 0.0; }
  double PulledAt(uint32_t slot) const { return slot < pulled.size() ? pulled[slot] : 0.0; }
};
// Of the shard threads of servers that stay, with every slot where it is.
struct TrafficSpread {
  double hottest = 0, mean = 0;
  uint32_t server = 0, thread = 0;  // the hottest
  double of_mean() const { return mean > 0 ? hottest / mean : 1; }
};
TrafficSpread SpreadOf(const wire::ClusterState& state, const SlotTraffic& traffic);

}  // namespace cairn::scheduler

// The work that slots mean to shard threads (rule 53). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/cluster_state.h"

namespace cairn::scheduler {

// When slots are moved for the work that they mean (traffic_watch.h).
struct TrafficOptions {
  double hot = 1.25;                 // so many times the mean is clearly more
  double floor = 4.0 * 1024 * 1024;  // work a second: a thread with less is not hot, whatever the others do
  int64_t for_us = 15'000'000;       // that it is hot before anything moves
  int64_t window_us = 20'000'000;    // rates are decayed means over about so long
  int64_t again_us = 60'000'000;     // after a look that found nothing to gain
  int64_t rest_us = 300'000'000;     // a slot that was moved for its traffic is not moved for it again
};

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

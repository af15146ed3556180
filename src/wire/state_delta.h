// What changed between two versions of the cluster's state. A state is sent whole to a node that has
// none, and as a difference to one that has the version before: in a large cluster a change touches
// little of it, and everybody is told.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::wire {

struct StateDelta {
  StateVersion base;  // the version that it is to be applied to
  // The new state; of its servers, slots, workers and tables only those that changed or are new.
  ClusterState changed;
  std::vector<uint32_t> slot_ids;                                 // of changed.slots, ascending
  std::vector<uint32_t> servers_gone, workers_gone, tables_gone;  // by index, rank and id
};

// Requires that both have as many slots.
StateDelta Difference(const ClusterState& base, const ClusterState& now);
// The new state; an error where `base` is another version, or the result is not a state.
Result<ClusterState> Apply(const ClusterState& base, const StateDelta& delta);

}  // namespace cairn::wire

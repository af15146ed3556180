// Whether a state that came from the network can be used. Pure.
#pragma once

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::client {

// Owners exist, numbers are in bounds.
Status CheckState(const wire::ClusterState& state);

}  // namespace cairn::client

// Which workers are in a barrier, from what the scheduler says while they are: it names those that
// have not arrived ("barrier 3: ranks 0, 2 have not arrived").
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "wire/cluster_state.h"

namespace cairn::client {

// Ranks of the workers of a view that are not named there, ascending; none where no barrier is.
std::vector<uint32_t> RanksInBarrier(const wire::ClusterState& state, std::string_view awaiting);

}  // namespace cairn::client

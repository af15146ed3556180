// A table as users know it, for messages. Pure.
#pragma once

#include <string>

#include "base/ids.h"
#include "wire/cluster_state.h"

namespace cairn::client {

// "table "w"", or "table 3" if the state has none with this id.
std::string TableName(const wire::ClusterState& state, TableId table);

}  // namespace cairn::client

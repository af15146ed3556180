// Many tables that are asked for at once, cut into messages that the scheduler takes.
#pragma once

#include <vector>

#include "cairn/types.h"

namespace cairn::client {

// In their order; each has at least one, at most wire::kMaxTablesAtOnce, and, unless it is alone,
// stays well below what a message to the scheduler may have.
std::vector<std::vector<TableSpec>> InMessages(std::vector<TableSpec> specs);

}  // namespace cairn::client

// When the job is over, and how (rules 7 and 10). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

// Ranks of the job that are neither live nor done nor given up: dead, or never seen.
std::vector<uint32_t> OpenRanks(const DurableState& d);
bool JobIsOver(const DurableState& d);
// Requires JobIsOver. Phase ended, or failed if nobody is done.
void EndJob(DurableState& d);
// Requires that it is not over.
void FailJob(DurableState& d, std::string reason);

}  // namespace cairn::scheduler

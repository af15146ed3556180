// How many servers the job should have: what `cairn scale` asks for, and servers that come or go of their
// own accord. Pure. `replicas`: owners of each slot as the user asked for them; 0: two if there are two
// servers or more.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cairn/status.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

void ExpectServers(DurableState& d, uint32_t servers, uint32_t replicas);
// Whether the job can have so many servers from now on.
Status CheckServerCount(const DurableState& d, uint32_t servers);
// Servers that were asked to go stay after all, until so many do; which (indexes). Those for which
// `wants_to_leave` is true want to go themselves, and are not kept.
std::vector<uint32_t> KeepServers(DurableState& d, uint32_t wanted,
                                  const std::function<bool(Incarnation)>& wants_to_leave);
// Those with the highest indexes are asked to go, until only so many stay; which, in order.
std::vector<uint32_t> AskServersToGo(DurableState& d, uint32_t wanted);

}  // namespace cairn::scheduler

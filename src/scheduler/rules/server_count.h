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
// A server that wants to go can do so only where so many stay.
uint32_t LeastToStay(const wire::ClusterState& state);
// What is known of servers beyond the durable state.
struct ServerWishes {
  std::function<bool(const wire::ServerInfo&)> wants_to_leave;  // of its own accord: it is not kept
  std::function<bool(const wire::ServerInfo&)> heard_lately;    // kept first; null: all alike
};
// Servers that were asked to go stay after all, until so many do; which (indexes, ascending).
std::vector<uint32_t> KeepServers(DurableState& d, uint32_t wanted, const ServerWishes& wishes);
// Some server wants to go, too few stay, and one that was only asked to go could stay in its place.
bool OneCouldStay(const wire::ClusterState& state, const ServerWishes& wishes);
// Those with the highest indexes are asked to go, until only so many stay; which, in order.
std::vector<uint32_t> AskServersToGo(DurableState& d, uint32_t wanted);

}  // namespace cairn::scheduler

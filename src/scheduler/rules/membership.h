// Who may register, with which rank, and what that does to the state (rules 2 and 5). Pure: no time, no
// messages, the same result from the same input.
#pragma once

#include <cstdint>

#include "cairn/status.h"
#include "scheduler/rules/durable.h"
#include "wire/control.h"

namespace cairn::scheduler {

inline constexpr uint32_t kMaxRanks = 65536;
inline constexpr uint32_t kMaxServerThreads = 1024;

// What can be said about a registration without looking at who is there.
Status CheckRegister(const DurableState& d, const wire::Register& request);
// The index or rank that a new node gets, or why it can't have one. Requires CheckRegister.
Result<uint32_t> ChooseServerIndex(const DurableState& d, const wire::Register& request);
Result<uint32_t> ChooseRank(const DurableState& d, const wire::Register& request);
// The server that listens there, if any.
const wire::ServerInfo* FindServerAt(const wire::ClusterState& state, const wire::Endpoint& endpoint);
const wire::WorkerInfo* FindWorkerOfRank(const wire::ClusterState& state, Rank rank);

// Gives the node the next incarnation and lists it. A live worker of the same rank is retired.
Incarnation AddNode(DurableState& d, const wire::Register& request, uint32_t rank, uint64_t barrier_base);
// Takes a live worker out of the job: kLeft makes its rank done.
void RemoveWorker(DurableState& d, Incarnation incarnation, NodeFate fate);

}  // namespace cairn::scheduler

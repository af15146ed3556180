// Forming the cluster, and views: which worker takes part from which round on (rules 3 and 6). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

// The ranks below expected_workers that the job can't start without and that are not there.
std::vector<uint32_t> MissingRanks(const DurableState& d);
std::vector<uint32_t> MissingServers(const DurableState& d);
bool ReadyToForm(const DurableState& d);
// Slot map, view 1, phase running. `d.state.version` is the version of the record.
void Form(DurableState& d);
std::vector<wire::SlotOwner> MakeSlotMap(std::span<const wire::ServerInfo> servers, uint32_t slot_count,
                                         StateVersion since);
// Gives each slot of a fresh map its backups, all in sync since everything is empty: those of one
// server's slots on all other servers in turn, so that its death spreads its work over all of them.
void SpreadBackups(wire::ClusterState& state);
std::vector<uint32_t> WaitingRanks(const wire::ClusterState& state);  // registered, in no view
void BeginView(DurableState& d);
// `open_rounds`: every server's report for the pending view, in any order.
void FinishView(DurableState& d, std::span<const wire::TableRound> open_rounds);
void DropUnusedViews(wire::ClusterState& state);

}  // namespace cairn::scheduler

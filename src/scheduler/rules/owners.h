// Who owns a slot: the single changes of owners, and what a primary's news do (rules 43 to 45, 47). Pure;
// placement/ decides which changes are wanted. Where a DurableState is changed, its version is already
// that of the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

uint32_t InSyncOwners(const wire::SlotOwner& owner);   // the primary counts
size_t CopyingSlots(const wire::ClusterState& state);  // that have a backup which is not in sync
uint32_t StayingServers(const wire::ClusterState& state);
uint32_t WantedOwners(const wire::ClusterState& state);  // of each slot: min(replicas, staying servers)
// The slots of which this server (index) is the only owner in sync: they are lost with it.
std::vector<uint32_t> SlotsOnlyAt(const wire::ClusterState& state, uint32_t server);
// Takes a server out of the job and out of every slot; owners in sync become primaries where it was
// one, if possible none of the suspects (indexes). Requires that SlotsOnlyAt is empty.
void RemoveServer(DurableState& d, Incarnation incarnation, NodeFate fate,
                  std::span<const uint32_t> suspects = {});
void AddBackup(DurableState& d, uint32_t slot, uint16_t server, uint16_t thread);
void MarkInSync(DurableState& d, uint32_t slot, uint32_t server);
void DropBackup(DurableState& d, uint32_t slot, uint32_t server);
void BeginHandover(DurableState& d, uint32_t slot, uint32_t heir);
void FinishHandover(DurableState& d, uint32_t slot);
enum class NewsEffect : uint8_t {
  kStale,       // not, or no longer, about the owners of now
  kNotAllowed,  // a slow backup that is needed
  kTaken,
};
// `sender`: the server that says it, by index; `held`: the version that it held.
NewsEffect TakeNews(DurableState& d, uint32_t sender, StateVersion held, const wire::SlotNews& news);

// Whether `sender`, the slot's primary, says that it can't go on with it; and what the job ends with then.
bool IsRuin(const wire::ClusterState& state, uint32_t sender, const wire::SlotNews& news);
std::string RuinText(const wire::SlotNews& news);

}  // namespace cairn::scheduler

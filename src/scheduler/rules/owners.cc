#include "scheduler/rules/owners.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/planted.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {
namespace {

wire::Backup* FindBackup(wire::SlotOwner& owner, uint32_t server) {
  for (wire::Backup& backup : owner.backups)
    if (backup.server == server) return &backup;
  return nullptr;
}

void MakePrimary(DurableState& d, wire::SlotOwner& owner, const wire::Backup& heir) {
  owner.server = heir.server;
  owner.thread = heir.thread;
  ++owner.epoch;
  if (!CAIRN_BUG(kSinceKept)) owner.since = d.state.version;
  owner.heir = wire::kNoServer;
  std::erase_if(owner.backups, [&](const wire::Backup& b) { return b.server == owner.server; });
}

bool Suspected(std::span<const uint32_t> suspects, uint32_t server) {
  return std::find(suspects.begin(), suspects.end(), server) != suspects.end();
}

// The dead primary's slots, each to the owner in sync that has the fewest primaries: so its work is
// spread over all others. One that is suspected of being dead too is only taken if it must be.
void Promote(DurableState& d, uint32_t dead, std::span<const uint32_t> suspects) {
  std::map<uint32_t, uint32_t> primaries;
  for (const wire::SlotOwner& owner : d.state.slots) ++primaries[owner.server];
  for (wire::SlotOwner& owner : d.state.slots) {
    if (owner.server != dead) continue;
    const wire::Backup* best = nullptr;
    auto key = [&](const wire::Backup& b) {
      return std::make_tuple(Suspected(suspects, b.server), primaries[b.server], b.server);
    };
    for (const wire::Backup& backup : owner.backups)
      if ((backup.in_sync || CAIRN_BUG(kPromoteNotInSync)) && (best == nullptr || key(backup) < key(*best)))
        best = &backup;
    CAIRN_CHECK(best != nullptr);
    ++primaries[best->server];
    MakePrimary(d, owner, wire::Backup(*best));
    ++d.state.failovers;
  }
}

}  // namespace

uint32_t InSyncOwners(const wire::SlotOwner& owner) {
  uint32_t count = 1;
  for (const wire::Backup& backup : owner.backups) count += backup.in_sync ? 1 : 0;
  return count;
}

size_t CopyingSlots(const wire::ClusterState& state) {
  size_t count = 0;
  for (const wire::SlotOwner& owner : state.slots)
    count += InSyncOwners(owner) < owner.backups.size() + 1 ? 1 : 0;
  return count;
}

uint32_t StayingServers(const wire::ClusterState& state) {
  return static_cast<uint32_t>(std::count_if(state.servers.begin(), state.servers.end(),
                                             [](const wire::ServerInfo& s) { return !s.leaving; }));
}

uint32_t WantedOwners(const wire::ClusterState& state) {
  return std::min(state.replicas, std::max(1u, StayingServers(state)));
}

std::vector<uint32_t> SlotsOnlyAt(const wire::ClusterState& state, uint32_t server) {
  std::vector<uint32_t> slots;
  for (uint32_t slot = 0; slot < state.slots.size(); ++slot)
    if (state.slots[slot].server == server && InSyncOwners(state.slots[slot]) == 1) slots.push_back(slot);
  return slots;
}

void RemoveServer(DurableState& d, Incarnation incarnation, NodeFate fate,
                  std::span<const uint32_t> suspects) {
  NodeRecord* node = d.FindNode(incarnation);
  CAIRN_CHECK(node != nullptr && node->role == wire::Role::kServer && node->fate == NodeFate::kLive &&
              fate != NodeFate::kLive);
  node->fate = fate;
  const uint32_t index = node->rank;
  std::erase_if(d.state.servers, [&](const wire::ServerInfo& s) { return s.incarnation == incarnation; });
  for (wire::SlotOwner& owner : d.state.slots) {
    std::erase_if(owner.backups, [&](const wire::Backup& backup) { return backup.server == index; });
    if (owner.heir == index) owner.heir = wire::kNoServer;
  }
  Promote(d, index, suspects);
}

void AddBackup(DurableState& d, uint32_t slot, uint16_t server, uint16_t thread) {
  wire::SlotOwner& owner = d.state.slots.at(slot);
  CAIRN_CHECK(owner.server != server && FindBackup(owner, server) == nullptr &&
              owner.backups.size() < wire::kMaxBackups);
  owner.backups.push_back({server, thread, /*in_sync=*/false, d.state.version});
}

void MarkInSync(DurableState& d, uint32_t slot, uint32_t server) {
  wire::Backup* backup = FindBackup(d.state.slots.at(slot), server);
  CAIRN_CHECK(backup != nullptr && !backup->in_sync);
  backup->in_sync = true;
  ++d.moves_done;
}

void DropBackup(DurableState& d, uint32_t slot, uint32_t server) {
  wire::SlotOwner& owner = d.state.slots.at(slot);
  CAIRN_CHECK(std::erase_if(owner.backups, [&](const wire::Backup& b) { return b.server == server; }) == 1);
  if (owner.heir == server) owner.heir = wire::kNoServer;
}

void BeginHandover(DurableState& d, uint32_t slot, uint32_t heir) {
  wire::SlotOwner& owner = d.state.slots.at(slot);
  const wire::Backup* backup = FindBackup(owner, heir);
  CAIRN_CHECK(backup != nullptr && backup->in_sync && owner.heir == wire::kNoServer);
  owner.heir = backup->server;
}

void FinishHandover(DurableState& d, uint32_t slot) {
  wire::SlotOwner& owner = d.state.slots.at(slot);
  const wire::Backup* heir = FindBackup(owner, owner.heir);
  CAIRN_CHECK(heir != nullptr && heir->in_sync);
  const wire::Backup old{owner.server, owner.thread, /*in_sync=*/true, d.state.version};
  MakePrimary(d, owner, wire::Backup(*heir));
  owner.backups.push_back(old);
  ++d.moves_done;
}

// A heartbeat may be a late copy. What it says of a backup counts only for the very backup that it
// was said of; an heir that was another one then has been added after the state that its sender held.
NewsEffect TakeNews(DurableState& d, uint32_t sender, StateVersion held, const wire::SlotNews& news) {
  if (news.slot >= d.state.slots.size()) return NewsEffect::kStale;
  const wire::SlotOwner& owner = d.state.slots[news.slot];
  const wire::Backup* backup = owner.FindBackup(news.server);
  if (owner.server != sender || owner.epoch != news.epoch || backup == nullptr) return NewsEffect::kStale;
  if (news.kind == wire::SlotNews::kHandedOver) {
    if (owner.heir != news.server || held < backup->added) return NewsEffect::kStale;
    FinishHandover(d, news.slot);
    return NewsEffect::kTaken;
  }
  if (backup->added != news.added) return NewsEffect::kStale;
  switch (news.kind) {
    case wire::SlotNews::kCaughtUp:
      if (backup->in_sync) return NewsEffect::kStale;
      MarkInSync(d, news.slot, news.server);
      return NewsEffect::kTaken;
    case wire::SlotNews::kSlow:
      // With fewer owners nothing would be acknowledged: waiting for the slow one is no worse.
      if (backup->in_sync && InSyncOwners(owner) <= d.state.min_in_sync) return NewsEffect::kNotAllowed;
      DropBackup(d, news.slot, news.server);
      return NewsEffect::kTaken;
    case wire::SlotNews::kDiverged: DropBackup(d, news.slot, news.server); return NewsEffect::kTaken;
    case wire::SlotNews::kHandedOver:
    case wire::SlotNews::kNotWhole:
    case wire::SlotNews::kSpent: break;  // IsRuin
  }
  return NewsEffect::kStale;
}

bool IsRuin(const wire::ClusterState& state, uint32_t sender, const wire::SlotNews& news) {
  if (news.kind != wire::SlotNews::kNotWhole && news.kind != wire::SlotNews::kSpent) return false;
  return news.slot < state.slots.size() && state.slots[news.slot].server == sender &&
         state.slots[news.slot].epoch == news.epoch;
}

std::string RuinText(const wire::SlotNews& news) {
  const std::string which = "partition " + std::to_string(news.slot);
  const std::string server = "server " + std::to_string(news.server);
  if (news.kind == wire::SlotNews::kSpent)
    return which +
           " has had as many operations as can be counted (2^40): start the job again, with more "
           "partitions (--slots) if this was soon";
  return which + " went to " + server +
         ", whose copy of it is not whole: what was acknowledged of it may be "
         "lost, so the job ends. Start it again, and please report this";
}

}  // namespace cairn::scheduler

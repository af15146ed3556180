#include "scheduler/placement/repair.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

// Slots with more owners than wanted that no move explains: fewer are wanted than before. The one to
// go is one that is not in sync yet, else that of the server with the most.
void NameSurplus(Plan& plan) {
  for (uint32_t slot = 0; slot < plan.slots(); ++slot) {
    const wire::SlotOwner& owner = plan.Slot(slot);
    if (plan.StayingOwners(owner) <= plan.wanted() || plan.MovingFrom(slot)) continue;
    std::optional<std::tuple<bool, double, uint32_t>> worst;
    auto look = [&](uint32_t server, bool in_sync) {
      if (!plan.At(server).stays) return;
      worst = std::max(worst, std::optional(std::tuple(!in_sync, plan.At(server).ratio(), server)));
    };
    look(owner.server, true);
    for (const wire::Backup& backup : owner.backups) look(backup.server, backup.in_sync);
    plan.NameSurplus(slot, static_cast<uint16_t>(std::get<uint32_t>(*worst)));
  }
}

// A copy on a server that is leaving, without which one owner would be left: as long as the server is
// there for other slots, this copy may be what saves the job. It goes with all the others (LetLeaverGo).
bool KeptForNow(const Plan& plan, uint32_t slot, uint32_t server) {
  const wire::SlotOwner& owner = plan.Slot(slot);
  const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server));
  return !plan.At(server).stays && backup != nullptr && backup->in_sync && plan.SafeOwners(owner, server) < 2;
}

// Drops an owner if enough others have everything; a primary is handed over first. False: a handover
// has begun, or this slot has to wait.
bool LetGo(Plan& plan, uint32_t slot, uint32_t server) {
  const wire::SlotOwner& owner = plan.Slot(slot);
  const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server));
  const bool copying = backup != nullptr && !backup->in_sync;
  if (!copying && plan.SafeOwners(owner, server) < std::max(plan.wanted(), plan.min_in_sync())) return false;
  if (backup != nullptr) {
    plan.Drop(slot, server);
    return true;
  }
  // Whoever is being copied to would have to be copied to anew by the new primary.
  if (InSyncOwners(owner) != owner.backups.size() + 1) return false;
  if (plan.At(server).handing_over >= plan.limits().handovers_per_server) return false;
  const wire::Backup* heir = plan.Successor(slot);
  if (heir != nullptr && plan.At(heir->server).avoided) heir = nullptr;
  if (heir != nullptr) {
    plan.HandOver(slot, heir->server);
    return false;
  }
  auto key = [&](const wire::Backup& b) {
    return std::tuple(plan.At(b.server).primaries / plan.At(b.server).weight, b.server);
  };
  for (const wire::Backup& b : owner.backups)
    if (plan.At(b.server).stays && !plan.At(b.server).avoided && (heir == nullptr || key(b) < key(*heir)))
      heir = &b;
  if (heir != nullptr) plan.HandOver(slot, heir->server);
  return false;
}

void Shrink(Plan& plan, uint32_t slot) {
  const wire::SlotOwner& owner = plan.Slot(slot);
  if (owner.heir != wire::kNoServer || plan.At(owner.server).avoided) return;
  std::vector<uint32_t> go;
  if (!plan.At(owner.server).stays) go.push_back(owner.server);
  for (const wire::Backup& backup : owner.backups)
    if (!plan.At(backup.server).stays) go.push_back(backup.server);
  if (const auto from = plan.MovingFrom(slot)) go.push_back(*from);
  for (uint32_t server : go)
    if (!KeptForNow(plan, slot, server) && !LetGo(plan, slot, server)) return;
}

// In one record: its copies are in sync until it owns nothing.
void LetLeaverGo(Plan& plan, const Plan::Server& leaver) {
  const auto index = static_cast<uint16_t>(leaver.index);
  std::vector<uint32_t> backed;
  for (uint32_t slot = 0; slot < plan.slots(); ++slot) {
    const wire::SlotOwner& owner = plan.Slot(slot);
    if (owner.server == index) return;
    if (owner.FindBackup(index) == nullptr) continue;
    const bool enough = plan.SafeOwners(owner, index) >= std::max(plan.wanted(), plan.min_in_sync());
    if (owner.heir != wire::kNoServer || plan.At(owner.server).avoided || !enough) return;
    backed.push_back(slot);
  }
  for (uint32_t slot : backed) LetGo(plan, slot, index);
}

// Those with the fewest copies first.
bool Grow(Plan& plan) {
  std::vector<std::pair<uint32_t, uint32_t>> lacking;  // owners in sync, slot
  for (uint32_t slot = 0; slot < plan.slots(); ++slot)
    if (plan.StayingOwners(plan.Slot(slot)) < plan.wanted())
      lacking.emplace_back(InSyncOwners(plan.Slot(slot)), slot);
  std::sort(lacking.begin(), lacking.end());
  bool all = true;
  for (const auto& [in_sync, slot] : lacking) {
    const wire::SlotOwner& owner = plan.Slot(slot);
    bool begun = false;
    while (plan.StayingOwners(owner) < plan.wanted() && owner.heir == wire::kNoServer &&
           owner.backups.size() < wire::kMaxBackups &&
           plan.At(owner.server).copies_out < plan.limits().copies_per_server) {
      const Plan::Server* best = nullptr;
      for (const Plan::Server& server : plan.servers()) {
        const bool owns =
            owner.server == server.index || owner.FindBackup(static_cast<uint16_t>(server.index)) != nullptr;
        if (!server.stays || server.avoided || owns || server.copies_in >= plan.limits().copies_per_server)
          continue;
        auto after = [cost = plan.Cost(slot)](const Plan::Server& s) { return (s.load + cost) / s.weight; };
        if (best == nullptr || after(server) < after(*best)) best = &server;
      }
      if (best == nullptr) break;
      plan.BeginCopy(slot, plan.PlaceOf(best->index));
      begun = true;
    }
    all &= begun && plan.StayingOwners(owner) == plan.wanted();
  }
  return all;
}

}  // namespace

bool Repair(Plan& plan) {
  NameSurplus(plan);
  for (uint32_t slot = 0; slot < plan.slots(); ++slot) Shrink(plan, slot);
  for (const Plan::Server& server : plan.servers())
    if (!server.stays) LetLeaverGo(plan, server);
  return Grow(plan);
}

}  // namespace cairn::scheduler

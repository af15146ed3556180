#include "scheduler/placement/plan.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {
// A slot costs something even while it is empty: what can't be told apart is spread by number.
constexpr double kEmptySlotBytes = 4096;
}  // namespace

Plan::Plan(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits)
    : d_(d), bytes_(bytes), limits_(limits), wanted_(WantedOwners(d.state)) {
  for (const wire::ServerInfo& info : d.state.servers) {
    Server& server = servers_.emplace_back();
    server.index = info.index;
    server.weight = info.threads;
    server.stays = !info.leaving;
    server.avoided = std::find(limits.avoid.begin(), limits.avoid.end(), info.index) != limits.avoid.end();
    server.threads.resize(info.threads);
    at_.resize(info.index + 1, SIZE_MAX);
    at_[info.index] = servers_.size() - 1;
    if (server.stays) weights_ += server.weight;
  }
  ForgetOldMoves();
  Tally();
}

double Plan::Cost(uint32_t slot) const {
  return kEmptySlotBytes + (slot < bytes_.size() ? static_cast<double>(bytes_[slot]) : 0.0);
}

std::optional<uint16_t> Plan::MovingFrom(uint32_t slot) const {
  const auto moving = d_.moving_from.find(slot);
  if (moving == d_.moving_from.end()) return std::nullopt;
  return moving->second;
}

const wire::Backup* Plan::Successor(uint32_t slot) const {
  const wire::SlotOwner& owner = Slot(slot);
  if (MovingFrom(slot) != owner.server) return nullptr;
  const wire::Backup* newest = nullptr;
  bool only = false;
  for (const wire::Backup& backup : owner.backups) {
    if (!At(backup.server).stays) continue;
    only = newest == nullptr || backup.added != newest->added;
    if (newest == nullptr || backup.added > newest->added) newest = &backup;
  }
  return only ? newest : nullptr;
}

uint32_t Plan::StayingOwners(const wire::SlotOwner& owner) const {
  uint32_t count = At(owner.server).stays ? 1 : 0;
  for (const wire::Backup& backup : owner.backups) count += At(backup.server).stays ? 1 : 0;
  return count;
}

uint32_t Plan::SafeOwners(const wire::SlotOwner& owner, uint32_t except) const {
  auto safe = [&](uint32_t server) { return server != except && At(server).stays && !At(server).avoided; };
  uint32_t count = safe(owner.server) ? 1 : 0;
  for (const wire::Backup& backup : owner.backups) count += backup.in_sync && safe(backup.server) ? 1 : 0;
  return count;
}

bool Plan::Settled(uint32_t slot) const {
  const wire::SlotOwner& owner = Slot(slot);
  return owner.heir == wire::kNoServer && !d_.moving_from.contains(slot) && InSyncOwners(owner) == wanted_ &&
         owner.backups.size() + 1 == wanted_ && StayingOwners(owner) == wanted_;
}

// A move is off if its end is gone (a death, a drop), or what it moved from is.
void Plan::ForgetOldMoves() {
  std::erase_if(d_.moving_from, [&](const auto& entry) {
    const auto& [slot, from] = entry;
    const wire::SlotOwner& owner = Slot(slot);
    const bool owns = owner.server == from || owner.FindBackup(from) != nullptr;
    return !owns || !At(from).stays || StayingOwners(owner) <= wanted_;
  });
}

void Plan::Tally() {
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    average_ += Cost(slot) / static_cast<double>(d_.state.slots.size());
    const wire::SlotOwner& owner = Slot(slot);
    const std::optional<uint16_t> moving_from = MovingFrom(slot);
    auto own = [&](uint32_t server, uint32_t thread) {
      Mutable(server).threads[thread] += Cost(slot);
      if (moving_from != server) Mutable(server).load += Cost(slot);
    };
    own(owner.server, owner.thread);
    for (const wire::Backup& backup : owner.backups) {
      own(backup.server, backup.thread);
      if (backup.in_sync) continue;
      ++Mutable(backup.server).copies_in;
      ++Mutable(owner.server).copies_out;
    }
    const wire::Backup* next = Successor(slot);
    ++Mutable(owner.heir != wire::kNoServer ? owner.heir
              : next != nullptr             ? next->server
                                            : owner.server)
          .primaries;
    if (owner.heir != wire::kNoServer) ++Mutable(owner.server).handing_over;
  }
}

void Plan::NameSurplus(uint32_t slot, uint16_t from) {
  CAIRN_CHECK(!MovingFrom(slot) && At(from).stays);
  d_.moving_from[slot] = from;
  Mutable(from).load -= Cost(slot);
}

void Plan::Drop(uint32_t slot, uint32_t server) {
  const wire::SlotOwner& owner = Slot(slot);
  const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server));
  CAIRN_CHECK(backup != nullptr);
  if (!backup->in_sync) {
    CAIRN_CHECK(At(server).copies_in > 0 && At(owner.server).copies_out > 0);
    --Mutable(server).copies_in;
    --Mutable(owner.server).copies_out;
  }
  Mutable(server).threads[backup->thread] -= Cost(slot);
  DropBackup(d_, slot, server);
  if (auto moving = d_.moving_from.find(slot); moving != d_.moving_from.end() && moving->second == server)
    d_.moving_from.erase(moving);
  ++change_.drops;
}

void Plan::HandOver(uint32_t slot, uint32_t heir) {
  Server& from = Mutable(Slot(slot).server);
  ++from.handing_over;
  const wire::Backup* counted = Successor(slot);
  --(counted != nullptr ? Mutable(counted->server) : from).primaries;
  ++Mutable(heir).primaries;
  BeginHandover(d_, slot, heir);
  ++change_.handovers;
}

void Plan::BeginMove(uint32_t slot, size_t from, size_t to, std::optional<uint32_t> thread) {
  CAIRN_CHECK(from != to && !MovingFrom(slot));
  Server& giver = servers_[from];
  BeginCopy(slot, to, thread);
  d_.moving_from[slot] = static_cast<uint16_t>(giver.index);
  giver.load -= Cost(slot);
  if (Slot(slot).server != giver.index) return;
  --giver.primaries;
  ++servers_[to].primaries;
}

void Plan::BeginCopy(uint32_t slot, size_t to, std::optional<uint32_t> thread) {
  Server& taker = servers_[to];
  CAIRN_CHECK(taker.stays);
  const auto least =
      thread ? taker.threads.begin() + *thread : std::min_element(taker.threads.begin(), taker.threads.end());
  AddBackup(d_, slot, static_cast<uint16_t>(taker.index),
            static_cast<uint16_t>(least - taker.threads.begin()));
  *least += Cost(slot);
  taker.load += Cost(slot);
  ++taker.copies_in;
  ++Mutable(Slot(slot).server).copies_out;
  ++change_.copies;
}

}  // namespace cairn::scheduler

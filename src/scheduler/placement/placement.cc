// Slots that lack an owner, have one too many, or have one that must go (rule 46).
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <tuple>

#include "scheduler/placement/planner.h"

namespace cairn::scheduler {

Planner::Planner(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits)
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
}

PlacementChange Planner::Run(const SlotTraffic* traffic) {
  if (Repair()) MoveBytes();
  MovePrimaries();
  // Bytes first: a server that has too many gets others to do its work anyway.
  if (traffic != nullptr && !change_.any()) MoveTraffic(*traffic);
  return change_;
}

const wire::Backup* Planner::Successor(uint32_t slot) {
  const wire::SlotOwner& owner = Slot(slot);
  const auto moving = d_.moving_from.find(slot);
  if (moving == d_.moving_from.end() || moving->second != owner.server) return nullptr;
  const wire::Backup* newest = nullptr;
  bool only = false;
  for (const wire::Backup& backup : owner.backups) {
    if (!At(backup.server).stays) continue;
    only = newest == nullptr || backup.added != newest->added;
    if (newest == nullptr || backup.added > newest->added) newest = &backup;
  }
  return only ? newest : nullptr;
}

bool Planner::Repair() {
  ForgetOldMoves();
  Tally();
  NameSurplus();
  const auto slots = static_cast<uint32_t>(d_.state.slots.size());
  for (uint32_t slot = 0; slot < slots; ++slot) Shrink(slot);
  for (const Server& server : servers_)
    if (!server.stays) LetLeaverGo(server);
  return Grow();
}

uint32_t Planner::StayingOwners(const wire::SlotOwner& owner) {
  uint32_t count = At(owner.server).stays ? 1 : 0;
  for (const wire::Backup& backup : owner.backups) count += At(backup.server).stays ? 1 : 0;
  return count;
}

uint32_t Planner::SafeOwners(const wire::SlotOwner& owner, uint32_t except) {
  auto safe = [&](uint32_t server) { return server != except && At(server).stays && !At(server).avoided; };
  uint32_t count = safe(owner.server) ? 1 : 0;
  for (const wire::Backup& backup : owner.backups) count += backup.in_sync && safe(backup.server) ? 1 : 0;
  return count;
}

bool Planner::Settled(uint32_t slot) {
  const wire::SlotOwner& owner = Slot(slot);
  return owner.heir == wire::kNoServer && d_.moving_from.count(slot) == 0 && InSyncOwners(owner) == wanted_ &&
         owner.backups.size() + 1 == wanted_ && StayingOwners(owner) == wanted_;
}

// A move is off if its end is gone (a death, a drop), or what it moved from is.
void Planner::ForgetOldMoves() {
  std::erase_if(d_.moving_from, [&](const auto& entry) {
    const auto& [slot, from] = entry;
    const wire::SlotOwner& owner = Slot(slot);
    const bool owns = owner.server == from || owner.FindBackup(from) != nullptr;
    return !owns || !At(from).stays || StayingOwners(owner) <= wanted_;
  });
}

void Planner::Tally() {
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    average_ += Cost(slot) / static_cast<double>(d_.state.slots.size());
    const wire::SlotOwner& owner = Slot(slot);
    const auto moving = d_.moving_from.find(slot);
    auto own = [&](uint32_t server, uint32_t thread) {
      At(server).threads[thread] += Cost(slot);
      if (moving == d_.moving_from.end() || moving->second != server) At(server).load += Cost(slot);
    };
    own(owner.server, owner.thread);
    for (const wire::Backup& backup : owner.backups) {
      own(backup.server, backup.thread);
      if (backup.in_sync) continue;
      ++At(backup.server).copies_in;
      ++At(owner.server).copies_out;
    }
    const wire::Backup* next = Successor(slot);
    ++At(owner.heir != wire::kNoServer ? owner.heir : next != nullptr ? next->server : owner.server).primaries;
    if (owner.heir != wire::kNoServer) ++At(owner.server).handing_over;
  }
}

// Slots with more owners than wanted that no move explains: fewer are wanted than before. The one to
// go is one that is not in sync yet, else that of the server with the most.
void Planner::NameSurplus() {
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = Slot(slot);
    if (StayingOwners(owner) <= wanted_ || d_.moving_from.count(slot) > 0) continue;
    std::optional<std::tuple<bool, double, uint32_t>> worst;
    auto look = [&](uint32_t server, bool in_sync) {
      if (!At(server).stays) return;
      worst = std::max(worst, std::optional(std::tuple(!in_sync, At(server).ratio(), server)));
    };
    look(owner.server, true);
    for (const wire::Backup& backup : owner.backups) look(backup.server, backup.in_sync);
    const auto from = static_cast<uint16_t>(std::get<uint32_t>(*worst));
    d_.moving_from[slot] = from;
    At(from).load -= Cost(slot);
  }
}

void Planner::Shrink(uint32_t slot) {
  const wire::SlotOwner& owner = Slot(slot);
  if (owner.heir != wire::kNoServer || At(owner.server).avoided) return;
  std::vector<uint32_t> go;
  if (!At(owner.server).stays) go.push_back(owner.server);
  for (const wire::Backup& backup : owner.backups)
    if (!At(backup.server).stays) go.push_back(backup.server);
  if (auto moving = d_.moving_from.find(slot); moving != d_.moving_from.end()) go.push_back(moving->second);
  for (uint32_t server : go)
    if (!KeptForNow(slot, server) && !LetGo(slot, server)) return;
}

// A copy on a server that is leaving, without which one owner would be left: as long as the server is
// there for other slots, this copy may be what saves the job. It goes with all the others (LetLeaverGo).
bool Planner::KeptForNow(uint32_t slot, uint32_t server) {
  const wire::SlotOwner& owner = Slot(slot);
  const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server));
  return !At(server).stays && backup != nullptr && backup->in_sync && SafeOwners(owner, server) < 2;
}

// In one record: its copies are in sync until it owns nothing.
void Planner::LetLeaverGo(const Server& leaver) {
  const auto index = static_cast<uint16_t>(leaver.index);
  std::vector<uint32_t> backed;
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = Slot(slot);
    if (owner.server == index) return;
    if (owner.FindBackup(index) == nullptr) continue;
    const bool enough = SafeOwners(owner, index) >= std::max(wanted_, d_.state.min_in_sync);
    if (owner.heir != wire::kNoServer || At(owner.server).avoided || !enough) return;
    backed.push_back(slot);
  }
  for (uint32_t slot : backed) LetGo(slot, index);
}

// Drops an owner if enough others have everything; a primary is handed over first. False: a handover
// has begun, or this slot has to wait.
bool Planner::LetGo(uint32_t slot, uint32_t server) {
  const wire::SlotOwner& owner = Slot(slot);
  const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server));
  const bool copying = backup != nullptr && !backup->in_sync;
  if (!copying && SafeOwners(owner, server) < std::max(wanted_, d_.state.min_in_sync)) return false;
  if (backup != nullptr) {
    if (copying) {
      --At(server).copies_in;
      --At(owner.server).copies_out;
    }
    At(server).threads[backup->thread] -= Cost(slot);
    DropBackup(d_, slot, server);
    if (auto moving = d_.moving_from.find(slot); moving != d_.moving_from.end() && moving->second == server)
      d_.moving_from.erase(moving);
    ++change_.drops;
    return true;
  }
  // Whoever is being copied to would have to be copied to anew by the new primary.
  if (InSyncOwners(owner) != owner.backups.size() + 1) return false;
  if (At(server).handing_over >= limits_.handovers_per_server) return false;
  const wire::Backup* heir = Successor(slot);
  if (heir != nullptr && At(heir->server).avoided) heir = nullptr;
  if (heir != nullptr) {
    HandOver(slot, heir->server);
    return false;
  }
  auto key = [&](const wire::Backup& b) {
    return std::tuple(At(b.server).primaries / At(b.server).weight, b.server);
  };
  for (const wire::Backup& b : owner.backups)
    if (At(b.server).stays && !At(b.server).avoided && (heir == nullptr || key(b) < key(*heir))) heir = &b;
  if (heir != nullptr) HandOver(slot, heir->server);
  return false;
}

void Planner::HandOver(uint32_t slot, uint32_t heir) {
  Server& from = At(Slot(slot).server);
  ++from.handing_over;
  const wire::Backup* counted = Successor(slot);
  --(counted != nullptr ? At(counted->server) : from).primaries;
  ++At(heir).primaries;
  BeginHandover(d_, slot, heir);
  ++change_.handovers;
}

void Planner::BeginMove(uint32_t slot, Server& from, Server& to, std::optional<uint32_t> thread) {
  BeginCopy(slot, to, thread);
  d_.moving_from[slot] = static_cast<uint16_t>(from.index);
  from.load -= Cost(slot);
  if (Slot(slot).server != from.index) return;
  --from.primaries;
  ++to.primaries;
}

void Planner::BeginCopy(uint32_t slot, Server& to, std::optional<uint32_t> thread) {
  const auto least = thread ? to.threads.begin() + *thread
                            : std::min_element(to.threads.begin(), to.threads.end());
  AddBackup(d_, slot, static_cast<uint16_t>(to.index), static_cast<uint16_t>(least - to.threads.begin()));
  *least += Cost(slot);
  to.load += Cost(slot);
  ++to.copies_in;
  ++At(Slot(slot).server).copies_out;
  ++change_.copies;
}

// Those with the fewest copies first.
bool Planner::Grow() {
  std::vector<std::pair<uint32_t, uint32_t>> lacking;  // owners in sync, slot
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot)
    if (StayingOwners(Slot(slot)) < wanted_) lacking.emplace_back(InSyncOwners(Slot(slot)), slot);
  std::sort(lacking.begin(), lacking.end());
  bool all = true;
  for (const auto& [in_sync, slot] : lacking) {
    const wire::SlotOwner& owner = Slot(slot);
    bool begun = false;
    while (StayingOwners(owner) < wanted_ && owner.heir == wire::kNoServer &&
           owner.backups.size() < wire::kMaxBackups &&
           At(owner.server).copies_out < limits_.copies_per_server) {
      Server* best = nullptr;
      for (Server& server : servers_) {
        const bool owns =
            owner.server == server.index || owner.FindBackup(static_cast<uint16_t>(server.index)) != nullptr;
        if (!server.stays || server.avoided || owns || server.copies_in >= limits_.copies_per_server)
          continue;
        auto after = [cost = Cost(slot)](const Server& s) { return (s.load + cost) / s.weight; };
        if (best == nullptr || after(server) < after(*best)) best = &server;
      }
      if (best == nullptr) break;
      BeginCopy(slot, *best);
      begun = true;
    }
    all &= begun && StayingOwners(owner) == wanted_;
  }
  return all;
}

uint32_t MovesAtATime(size_t slots, const SlotBytes& bytes) {
  constexpr size_t kSlotsOfAMove = 256;
  const size_t most = slots / kSlotsOfAMove;
  if (most <= kFewMoves || bytes.empty()) return kFewMoves;
  // The heaviest, since nobody knows which will meet. A few of them may be under way however heavy they are.
  std::vector<uint64_t> heaviest(std::min(most, bytes.size()));
  std::partial_sort_copy(bytes.begin(), bytes.end(), heaviest.begin(), heaviest.end(), std::greater<>());
  const uint64_t light = std::max(kLightMovesBytes, kFewMoves * std::min(heaviest.front(), UINT64_MAX / kFewMoves));
  uint64_t sum = 0;
  uint32_t moves = 0;
  for (uint64_t weight : heaviest) {
    if (weight > light - sum) break;
    sum += weight;
    ++moves;
  }
  return std::max(kFewMoves, moves);
}

PlacementChange Place(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits,
                      const SlotTraffic* traffic) {
  return Planner(d, bytes, limits).Run(traffic);
}

// Each slot that lacks an owner, and what the servers with less than their share lack of it.
uint32_t Planner::AboutCopiesLeft() {
  ForgetOldMoves();
  Tally();
  double under_way = 0, lacking = 0, load = 0, lacking_bytes = 0;
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = Slot(slot);
    under_way += static_cast<double>(owner.backups.size() + 1 - InSyncOwners(owner));
    lacking += wanted_ - std::min(wanted_, StayingOwners(owner));
    load += Cost(slot) * wanted_;
  }
  const double mean = load / weights_;
  bool even = true;
  for (const Server& server : servers_) {
    if (!server.stays) continue;
    even &= std::abs(server.ratio() - mean) <= mean * kSlack;
    lacking_bytes += std::max(0.0, (mean - server.ratio()) * server.weight);
  }
  if (!even && StayingServers(d_.state) > wanted_) lacking = std::max(lacking, lacking_bytes / average_);
  return static_cast<uint32_t>(under_way + lacking);
}

uint32_t CopiesLeft(const DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits) {
  constexpr size_t kManySlots = 4096;  // to plan all of their moves takes seconds
  constexpr int kMostRounds = 16;      // each ends everything that the last one began
  if (d.state.slots.size() > kManySlots) {
    DurableState now = d;
    return Planner(now, bytes, limits).AboutCopiesLeft();
  }
  DurableState then = d;
  PlacementLimits all = limits;
  all.copies_per_server = all.handovers_per_server = UINT32_MAX;
  uint32_t copies = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    for (uint32_t slot = 0; slot < then.state.slots.size(); ++slot) {
      for (const wire::Backup& backup : std::vector<wire::Backup>(then.state.slots[slot].backups)) {
        if (backup.in_sync) continue;
        MarkInSync(then, slot, backup.server);
        ++copies;
      }
      if (then.state.slots[slot].heir != wire::kNoServer) FinishHandover(then, slot);
    }
    if (!Place(then, bytes, all).any()) break;
  }
  return copies;
}

}  // namespace cairn::scheduler

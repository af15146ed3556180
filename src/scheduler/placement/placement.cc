#include "scheduler/placement/placement.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "scheduler/placement/balance.h"
#include "scheduler/placement/plan.h"
#include "scheduler/placement/repair.h"
#include "scheduler/placement/traffic_exchange.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

// Each slot that lacks an owner, and what the servers with less than their share lack of it.
uint32_t AboutCopiesLeft(DurableState now, const SlotBytes& bytes, const PlacementLimits& limits) {
  const Plan plan(now, bytes, limits);
  double under_way = 0, lacking = 0, load = 0, lacking_bytes = 0;
  for (uint32_t slot = 0; slot < plan.slots(); ++slot) {
    const wire::SlotOwner& owner = plan.Slot(slot);
    under_way += static_cast<double>(owner.backups.size() + 1 - InSyncOwners(owner));
    lacking += plan.wanted() - std::min(plan.wanted(), plan.StayingOwners(owner));
    load += plan.Cost(slot) * plan.wanted();
  }
  const double mean = load / plan.weights();
  bool even = true;
  for (const Plan::Server& server : plan.servers()) {
    if (!server.stays) continue;
    even &= std::abs(server.ratio() - mean) <= mean * Plan::kSlack;
    lacking_bytes += std::max(0.0, (mean - server.ratio()) * server.weight);
  }
  if (!even && StayingServers(now.state) > plan.wanted())
    lacking = std::max(lacking, lacking_bytes / plan.average_cost());
  return static_cast<uint32_t>(under_way + lacking);
}

}  // namespace

uint32_t MovesAtATime(size_t slots, const SlotBytes& bytes) {
  constexpr size_t kSlotsOfAMove = 256;
  const size_t most = slots / kSlotsOfAMove;
  if (most <= kFewMoves || bytes.empty()) return kFewMoves;
  // The heaviest, since nobody knows which will meet. A few of them may be under way however heavy they are.
  std::vector<uint64_t> heaviest(std::min(most, bytes.size()));
  std::partial_sort_copy(bytes.begin(), bytes.end(), heaviest.begin(), heaviest.end(), std::greater<>());
  const uint64_t light =
      std::max(kLightMovesBytes, kFewMoves * std::min(heaviest.front(), UINT64_MAX / kFewMoves));
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
  Plan plan(d, bytes, limits);
  if (Repair(plan)) MoveBytes(plan);
  MovePrimaries(plan);
  // Bytes first: a server that has too many gets others to do its work anyway.
  if (traffic != nullptr && !plan.change().any()) MoveTraffic(plan, *traffic);
  return plan.change();
}

uint32_t CopiesLeft(const DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits) {
  constexpr size_t kManySlots = 4096;  // to plan all of their moves takes seconds
  constexpr int kMostRounds = 16;      // each ends everything that the last one began
  if (d.state.slots.size() > kManySlots) return AboutCopiesLeft(d, bytes, limits);
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

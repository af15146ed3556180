#include "scheduler/core/placer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "scheduler/rules/memory_room.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {
// Sizes change all the time; they are looked at so often.
constexpr int64_t kLookAtBytesUs = 1'000'000;
constexpr int64_t kLookAtTrafficUs = 1'000'000;
}  // namespace

void Placer::TakeLoads(uint32_t server, const std::vector<wire::SlotLoad>& loads, int64_t now_us) {
  const auto& slots = journal_.state().slots;
  CAIRN_CHECK(!slots.empty());
  sizes_.SetCount(slots.size());
  for (const wire::SlotLoad& load : loads) {
    if (load.slot >= slots.size() || slots[load.slot].server != server) continue;
    sizes_.Take(load.slot, load.bytes);
    traffic_.Take(load, server, now_us);
  }
}

void Placer::LookAtTraffic(int64_t now_us) {
  if (now_us - traffic_looked_us_ < kLookAtTrafficUs) return;
  traffic_looked_us_ = now_us;
  traffic_due_ = false;
  const DurableState& durable = journal_.durable();
  if (!durable.running() || durable.state.pending_view != ViewNumber(0)) return;
  const auto& slots = durable.state.slots;
  const bool quiet =
      durable.moving_from.empty() && barriers_.AllServersHeard() &&
      std::all_of(slots.begin(), slots.end(), [](const wire::SlotOwner& owner) {
        return owner.heir == wire::kNoServer && InSyncOwners(owner) == owner.backups.size() + 1;
      });
  traffic_due_ = traffic_.Due(durable.state, quiet, now_us);
}

bool Placer::WorkWaits(int64_t now_us) const {
  if (traffic_due_) return true;
  const bool changed = placed_version_ != journal_.state().version;
  const bool again = (sizes_.changed() || avoided_) && now_us - placed_us_ >= kLookAtBytesUs;
  return (changed || again) && barriers_.AllServersHeard();
}

PlacementLimits Placer::Limits(int64_t now_us) const {
  PlacementLimits limits;
  limits.avoid = presence_.Suspects(journal_.state(), now_us);
  for (const wire::ServerInfo& server : journal_.state().servers)
    if (news_.Rests(server.incarnation, now_us)) limits.avoid.push_back(server.index);
  return limits;
}

// A copy that does not fit kills the server that gets it, and then the next one.
void Placer::AvoidThoseWithoutMemory(const SlotBytes& bytes, PlacementLimits* limits) {
  const auto largest = std::max_element(bytes.begin(), bytes.end());
  if (largest == bytes.end()) return;
  const wire::ClusterState& state = journal_.state();
  const uint64_t under_way = std::max(*largest * std::min(limits->copies_per_server, kFewMoves),
                                      limits->copies_per_server > kFewMoves ? kLightMovesBytes : 0);
  for (uint32_t index : WithoutRoom(loads_.MemoryOfServers(state), under_way)) {
    limits->avoid.push_back(index);
    const Incarnation server = state.FindServer(index)->incarnation;
    const MemoryLeft& left = loads_.Of(server).stats.memory;
    if (told_full_.insert(server).second)
      log_("server " + std::to_string(index) + " has only " + Bytes(left.bytes) + " of memory left (" +
           Words(left.kind) + "): no partitions are copied to it");
  }
}

Placer::Placed Placer::Place(DurableState& next, int64_t now_us) {
  Placed placed;
  if (!barriers_.AllServersHeard()) return placed;  // a restarted scheduler does not know the sizes yet
  const wire::ClusterState& state = journal_.state();
  placed_us_ = now_us;
  sizes_.TakeChanged();
  const SlotBytes bytes = sizes_.Known();
  PlacementLimits limits = Limits(now_us);
  limits.copies_per_server = limits.handovers_per_server = MovesAtATime(state.slots.size(), bytes);
  AvoidThoseWithoutMemory(bytes, &limits);
  avoided_ = !limits.avoid.empty();
  const bool for_traffic = std::exchange(traffic_due_, false);
  const SlotTraffic traffic = for_traffic ? traffic_.Rates(now_us) : SlotTraffic();
  placed.change = scheduler::Place(next, bytes, limits, for_traffic ? &traffic : nullptr);
  const PlacementChange& change = placed.change;
  if (for_traffic && change.any() == !change.for_traffic.empty()) {
    if (!change.for_traffic.empty()) placed.traffic = SpreadOf(state, traffic);
    traffic_.Moved(change.for_traffic, now_us);
  }
  if (change.copies > 0 && CopyingSlots(state) == 0) copies_done_ = 0;  // a new wave
  return placed;
}

uint32_t Placer::CopiesLeft(int64_t now_us) const {
  return scheduler::CopiesLeft(journal_.durable(), sizes_.Known(), Limits(now_us));
}

}  // namespace cairn::scheduler

// Where slots should be (rule 46): what can be begun now to bring their owners nearer to it. Pure;
// plan.h has the plan, repair.h, balance.h and traffic_exchange.h what it begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/placement/traffic.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

inline constexpr uint32_t kFewMoves = 4;                          // may be under way however heavy they are
inline constexpr uint64_t kLightMovesBytes = uint64_t{64} << 20;  // of more than a few, together
struct PlacementLimits {
  uint32_t copies_per_server = kFewMoves;     // under way at a time, from it and to it
  uint32_t handovers_per_server = kFewMoves;  // under way at a time, from it: those slots take nothing
  std::vector<uint32_t> avoid;                // servers (indexes) that no copy is begun to
};
// Bytes by slot. Empty: not known, all count the same.
using SlotBytes = std::vector<uint64_t>;
// Both limits for a cluster: a few, but with more than 1,024 slots one for every 256 of them, as long as
// the heaviest so many are light together. Each wave is a record of every slot, so what a wave moves has to
// grow with the record, or the waves take longer the more slots there are.
uint32_t MovesAtATime(size_t slots, const SlotBytes& bytes);
struct PlacementChange {
  uint32_t copies = 0, drops = 0, handovers = 0;
  std::vector<uint32_t> for_traffic;  // slots that it has begun to move for their traffic
  bool any() const { return copies + drops + handovers > 0; }
};
// Begins whatever copies, drops and handovers bring the owners nearer to what is wanted and are
// possible now. Once nothing is under way and this changes nothing, everything is in its place. With
// `traffic` it then also moves slots off shard threads that have clearly more than the mean of it.
PlacementChange Place(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits,
                      const SlotTraffic* traffic = nullptr);
// How many copies Place has yet to begin or to finish, if nothing else happens: about, with many slots.
uint32_t CopiesLeft(const DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits);

}  // namespace cairn::scheduler

// Rounds that somebody waits for: what a shard, a server and the scheduler say about them. A few only,
// the longest waits first, whatever the size of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"

namespace cairn::wire {

inline constexpr size_t kMaxStalledRounds = 8, kMaxMissingNamed = 16;

struct StalledRound {
  TableId table;
  Round round;
  uint32_t waited_ms = 0;               // the longest wait for it
  uint32_t missing = 0;                 // workers that have not marked it, or not decided
  std::vector<uint32_t> missing_ranks;  // the lowest of them, ascending, at most kMaxMissingNamed
  bool operator==(const StalledRound&) const = default;
};

// Adds what somebody else says, which may be about a round that is there already. Keeps the order and
// the bounds.
void AddStalled(std::vector<StalledRound>& rounds, StalledRound more);

}  // namespace cairn::wire

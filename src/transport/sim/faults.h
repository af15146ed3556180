// The kinds of fault that a simulated network and its world can inflict, how likely each is under a
// seed, and how often each has happened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn::sim {

enum class Fault : uint8_t {
  kLongDelay,      // a frame, and all behind it on its connection, is late
  kLoss,           // a frame vanishes although its connection lives on
  kReorder,        // a frame overtakes others of its connection
  kDuplicate,      // a frame comes twice
  kLateDuplicate,  // a copy comes many seconds later, if need be on another connection
  kReset,          // a connection breaks with what is on it
  kPartition,      // nothing passes between nodes, for a while
  kOneWay,         // the same in one direction only
  kSchedulerCrash,
  kStoreCrash,  // the scheduler dies inside an append, before or after it is durable
  kTornTail,    // the same, with half a record on the disk
  kTornOrder,   // the same, with some sectors of it and not those before them
  kSyncFails,   // the scheduler's disk has an error: nobody knows what is on it
  kWorkerCrash,
  kTwin,  // a second process is started for the rank of a living one
  kServerCrash,
  kServerRestart,  // a lost server's successor, empty, at the same address or another one
  kServerSilent,   // alive, but cut off or paused for so long that it may be declared dead
  kServersCut,     // two servers can't reach each other, for a while
  kSchedulerCut,   // a scheduler can reach nobody, and nobody it, for a while
  kSlowLink,       // what passes between two servers takes long
  kOwnersLost,     // all owners of a slot at once: the job is expected to fail
  kMemory,         // a bit of what a backup was sent is another one by the time it is applied
  kSlowNode,       // handles everything with a lag
  kPause,          // handles nothing for a while, longer than it takes to be declared dead or shorter
  kKvUnknown,      // a write to the scheduler's key-value store whose outcome its writer is not told
  kKvLeaseLost,    // a leader's lease ends before its time
  kTwoLeaders,     // one that has been replaced is the only one that can be found, and does not know it
  kCount
};
inline constexpr size_t kFaultKinds = static_cast<size_t>(Fault::kCount);
const char* Name(Fault fault);

struct FaultCounts {
  std::array<uint64_t, kFaultKinds> of{};
  void Add(Fault fault) { ++of[static_cast<size_t>(fault)]; }
  uint64_t operator[](Fault fault) const { return of[static_cast<size_t>(fault)]; }
  FaultCounts& operator+=(const FaultCounts& other) {
    for (size_t i = 0; i < kFaultKinds; ++i) of[i] += other.of[i];
    return *this;
  }
};

// Per frame. All zero but the delays: a calm network.
struct FaultProfile {
  int64_t delay_us = 100;
  int64_t jitter_us = 100;
  double long_delay = 0;
  int64_t long_delay_us = 0;  // at most
  double loss = 0;
  double reorder = 0;
  int64_t reorder_us = 0;  // how far a frame may fall behind
  double duplicate = 0;
  double late_duplicate = 0;
  int64_t late_us = 0;  // at most
  double reset = 0;
};

}  // namespace cairn::sim

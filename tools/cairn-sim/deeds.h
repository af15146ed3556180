// What workers and shards have done in a run, beside plain pushes and rounds: a simulator in which
// one of these never happens no longer tests it, and a long run of seeds says so. To these belongs
// that a bound was reached (base/bounds.inc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bounds.h"

namespace cairn::sim {

enum class Deed : uint8_t {
  kTwoPhase,         // a slot closes a round as decided
  kSkipped,          // so decided
  kDeathInBetween,   // somebody has died between the sum and the decision
  kNobodyDecides,    // all who could decide have died
  kDecisionsDiffer,  // nothing is applied
  kContributedLate,  // a Contribute that ended at its deadline, and was decided all the same
  kNotFinite,        // a report says so
  kMasked,           // a part leaves segments out
  kAssignRound,
  kNobodyAssigns,  // a round of assigns without values
  kAssignOnce,
  kAwaitedAssign,  // a pull has waited for assigned values and got them
  kAllJoined,      // a worker is told so
  kRowsAssigned,
  kRowsAssignedOnce,
  kRowState,           // a round closes in a sparse table whose rows have state
  kRowsTwoPhase,       // as decided, in a sparse table
  kKeysTold,           // a slot has told the keys of its rows
  kServerJoins,        // a server comes to a running job
  kDrain,              // a server wants to go
  kServerLeaves,       // and has gone, in good order
  kScale,              // another number of servers is asked for
  kPromoted,           // a slot has a new primary because the old one died
  kHandedOver,         // or because it was handed over
  kCopied,             // a backup came in sync after a copy
  kSlowDropped,        // a backup in sync that lives was taken out
  kLineCut,            // operations of a dead primary never happened
  kDeposed,            // a primary that has been replaced does something and does not know it
  kNewLeader,          // of several schedulers another one leads
  kMovedForTraffic,    // slots, off a thread that does more than others
  kDamageFound,        // a backup has noticed that its content is not the primary's
  kResigned,           // a scheduler that hears nobody lets another one lead
  kLastWord,           // one has ended in the middle of telling, and nodes have compared what they heard
  kStatePassed,        // a server takes a state that a worker has passed on
  kHurtWhileDraining,  // a server is hurt while another one is leaving
  kHurtWhileJoining,   // while another one has just come
  kHurtWhileCopying,   // while another one is being copied to
  kEndTold,            // the launcher tells the scheduler that a process has ended
  kManyNodes,          // a job of more nodes than are told of each other one by one
  kCodedHalf,          // a frame goes with values of two bytes
  kCodedNonZero,       // without its zeros
  kCodedLz4,
  kRestSent,        // what top-k had held back is sent
  kChoiceDropped,   // a push that top-k has chosen from is refused
  kDifferenceTold,  // a state is told as what has changed
  kSplitPush,       // a push goes in parts, each a request of its own
  kLargeAlone,      // one that is larger than the client's bound waits until it is alone
  kPushPull,        // a push and the pull behind it, on an async table, end well
  kPulledAgain,     // the pull may have overtaken the push, and is repeated
  kTripOfTables,    // calls on several tables go in one trip
  kClosed,          // a client is closed while calls are under way
  kClosedInTrip,    // while a trip of it is open
  kClosedWaiting,   // while a caller waits for room
  kClosedBetweenParts,
  kAtTheBound,       // a read of a bounded table has exactly as much of another worker as it must
  kClockBeginsLate,  // a worker that has joined later takes part from where the others are
  kCount
};
inline constexpr size_t kDeedKinds = static_cast<size_t>(Deed::kCount);
const char* Name(Deed deed);
const char* Name(bounds::Bound bound);

struct DeedCounts {
  std::array<uint64_t, kDeedKinds> of{};
  bounds::Counts bounds{};  // how often each was reached
  void Add(Deed deed) { ++of[static_cast<size_t>(deed)]; }
  DeedCounts& operator+=(const DeedCounts& other) {
    for (size_t i = 0; i < kDeedKinds; ++i) of[i] += other.of[i];
    for (size_t i = 0; i < bounds.size(); ++i) bounds[i] += other.bounds[i];
    return *this;
  }
};

}  // namespace cairn::sim

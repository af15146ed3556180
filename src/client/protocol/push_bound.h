// The core's bound on the bytes of unacknowledged pushes: which requests wait for room, in which order they
// go, and that of a push in parts either every part goes or none. Pulls wait behind pushes that wait, so
// that a push followed by a pull reads itself. requests.h asks it; byte_bound.h has the rule. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/recycled.h"

namespace cairn::client {

class PushBound {
 public:
  struct Waiting {
    uint64_t request = 0;
    bool numbered = false;  // a push: takes up room
    uint64_t bytes = 0;
    uint64_t push = 0, room = 0;  // Request::push and Request::room
  };

  explicit PushBound(uint64_t bound) : bound_(bound) {}

  // Of a push in parts, and not the first one.
  static bool IsLaterPart(const Waiting& one) { return one.push != 0 && one.room == 0; }

  // Behind all that wait; Next() says when it goes. Not for later parts.
  void Add(const Waiting& one);
  // A later part. True: those before it have gone, so it goes now, and has taken its room; false: it waits
  // behind them.
  bool AddLaterPart(const Waiting& one);
  // Takes room for a push that waits for nothing. Requires HasRoomFor.
  void Take(uint64_t bytes);
  // The next that goes, with its room taken; 0 if none may go now.
  uint64_t Next();
  // It goes no more. Nothing if it does not wait.
  void Remove(uint64_t request);
  // The parts of this push that wait, in order: they go no more.
  std::vector<uint64_t> RemovePartsOf(uint64_t push);
  // A push that had gone has ended.
  void Free(uint64_t bytes);
  void Clear();

  bool none_wait() const { return waiting_.empty(); }
  // Whether the next push, of any size, would go at once.
  bool has_room() const { return waiting_.empty() && under_way_ < bound_; }
  bool HasRoomFor(uint64_t bytes) const;
  uint64_t under_way() const { return under_way_; }

 private:
  const uint64_t bound_;
  uint64_t under_way_ = 0;  // bytes of pushes that have gone and not ended
  RecycledDeque<Waiting> waiting_;
};

}  // namespace cairn::client

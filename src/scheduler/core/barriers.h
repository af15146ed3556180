// Barriers, counted from heartbeats: how many each worker has entered, and up to which one they are open.
// The counts are known by the workers alone: after a restart of the scheduler they say them again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "scheduler/core/journal.h"

namespace cairn::scheduler {

class Barriers {
 public:
  explicit Barriers(const Journal& journal) : journal_(journal) {}

  // A node that has just been admitted: as if it had entered so many.
  void Begin(Incarnation node, uint64_t count);
  void Take(Incarnation node, uint64_t count);
  void Forget(Incarnation node) { counts_.erase(node); }

  // Has said its count since this process started. (Servers say 0.)
  bool Heard(Incarnation node) const { return counts_.contains(node); }
  bool AllServersHeard() const;
  uint64_t Count(Incarnation node) const;  // 0: not heard
  // The smallest count of the live workers, `except` left out; none while one of them has not been heard,
  // named in `unheard`.
  std::optional<uint64_t> SmallestCount(std::optional<Rank> except, uint32_t* unheard) const;
  // All workers that are in a view have entered the barriers up to this one.
  uint64_t Open();
  // Whether more are open than when this was asked last.
  bool TakeOpened();

  uint64_t changes() const { return changes_; }  // of counts

 private:
  const Journal& journal_;
  std::map<Incarnation, uint64_t> counts_;  // of those that were heard
  uint64_t changes_ = 0;
  uint64_t open_ = 0, told_ = 0;
  // What open_ is of: Journal::commits and changes_.
  std::optional<std::pair<uint64_t, uint64_t>> open_of_;
};

}  // namespace cairn::scheduler

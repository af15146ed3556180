// Which nodes are heard, and which are silent: hearing.h has the time, this has what follows for each node.
// A silent node counts as dead, unless a slot needs it (failover.h). Nothing here outlives a restart.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "scheduler/core/hearing.h"
#include "wire/cluster_state.h"

namespace cairn::scheduler {

// Why a node is dead that was not silent for long: whoever started its process has said so.
inline constexpr const char* kProcessEnded = "its process has ended";

class Presence {
 public:
  Presence(const Hearing::Options& options, int64_t now_us, const LogLine& log)
      : hearing_(options, now_us), log_(log) {}

  // A node that should speak from now on.
  void Expect(Incarnation node, int64_t now_us);
  // It has spoken. Ends its silence, and perhaps one that everybody shared.
  void Hear(Incarnation node, bool same_host, int64_t now_us);
  void Forget(Incarnation node);
  // Its process has ended: no need to wait for its silence.
  void MarkDead(Incarnation node) { hearing_.MarkDead(node); }
  void NoteOutOfMemory(Incarnation node, bool out_of_memory);
  // This process could hear nobody for so long, or until now.
  void Excuse(int64_t us) { hearing_.Excuse(us); }
  void ExcuseAll(int64_t now_us) { hearing_.ExcuseAll(now_us); }
  // At each tick. `goes_on_here`: Hearing::Look.
  void Look(int64_t now_us, const std::function<bool()>& goes_on_here) {
    hearing_.Look(now_us, goes_on_here);
  }
  // Looks at everybody; those that have just become silent.
  std::vector<Incarnation> FindSilent(int64_t now_us);
  // True the first time in a silence: that it is needed has not been said yet.
  bool NoteNeeded(Incarnation node);

  bool silent(Incarnation node) const;
  bool out_of_memory(Incarnation node) const;
  uint64_t changes() const { return changes_; }  // how often a silence has begun or ended
  const Hearing& hearing() const { return hearing_; }

  // Whether the server (index) has been heard lately; and those that have not.
  bool ServerHeardLately(const wire::ClusterState& state, uint32_t server, int64_t now_us) const;
  std::vector<uint32_t> Suspects(const wire::ClusterState& state, int64_t now_us) const;

 private:
  struct Node {
    bool silent = false;         // overdue: dead, unless a slot needs it
    bool told_needed = false;    // has been logged as silent, but needed
    bool out_of_memory = false;  // its launcher says that it ended so
  };
  Hearing hearing_;
  const LogLine& log_;
  std::map<Incarnation, Node> nodes_;
  uint64_t changes_ = 0;
};

}  // namespace cairn::scheduler

// The alarm about partitions that have one owner in sync: one line for each event, however many slots it
// concerns, and one when it is over. One thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/log.h"
#include "wire/cluster_state.h"

namespace cairn::scheduler {

class SingleOwners {
 public:
  explicit SingleOwners(const LogLine& log) : log_(log) {}

  // So many slots have only one owner in `state`, the newest, since `why`.
  void Alarm(const wire::ClusterState& state, size_t slots, const std::string& why);
  // Says so if no slot of `state` has only one owner any more, and an alarm has been given.
  void ClearIfOver(const wire::ClusterState& state);

 private:
  const LogLine& log_;
  bool alarmed_ = false;
};

// Slots that have one owner in sync, and had more.
size_t NewlySingle(const wire::ClusterState& before, const wire::ClusterState& after);

}  // namespace cairn::scheduler

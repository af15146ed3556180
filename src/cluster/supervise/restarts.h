// Starts killed processes again, within the user's limit (restart_limit.h), and says so.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/supervise/process_end.h"
#include "cluster/supervise/restart_limit.h"
#include "cluster/supervise/running_nodes.h"
#include "cluster/supervise/supervise_action.h"

namespace cairn::cluster {

class Restarts {
 public:
  Restarts(const RestartLimit& limit, RunningNodes& running, ActionList& actions)
      : counts_(limit), running_(running), actions_(actions) {}

  // False: none is left for it. `what_follows`: for the user, after "starting it again".
  bool Take(const NodeName& node, const ProcessEnd& end, int64_t now_ms,
            const std::string& what_follows = "");
  std::string UsedUp() const;  // "3 restarts within 10 min are used up (--max-restarts)"
  uint32_t total() const { return counts_.total(); }

 private:
  RestartCounts counts_;
  RunningNodes& running_;
  ActionList& actions_;
};

}  // namespace cairn::cluster

// The nodes of a launcher: their processes, all together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "cluster/supervise/process_end.h"
#include "cluster/supervise/supervise_process.h"
#include "guard.h"
#include "job_output.h"
#include "node_process.h"
#include "status_poller.h"

namespace cairn::tool {

class NodeProcesses {
 public:
  explicit NodeProcesses(JobOutput& output) : output_(output) {}

  // Starts the guard, which cleans up if this launcher is killed (guard.h).
  void StartGuard(const std::string& self, const std::string& folder, const std::string& mark) {
    guard_.Start(self, folder, mark);
  }
  NodeProcess& Of(const cluster::NodeName& name);
  NodeProcess* Find(const cluster::NodeName& name);  // nullptr: it was never started
  NodeProcess* scheduler() { return Find({wire::Role::kScheduler, 0}); }

  // Waits for output of a node, for the scheduler's words or for `other_fd`, and reads what the nodes have
  // printed. Says whether the scheduler and `other_fd` have something.
  struct Waited {
    bool scheduler = false, other = false;
  };
  Waited ReadOutput(int other_fd, int timeout_ms);
  // The nodes that have ended since the last call, in the order of their tracebacks.
  std::vector<cluster::NodeName> TakeEnded();
  void FlushLines();

  // The servers here that the scheduler has told to go.
  std::set<uint32_t> LeavingHere(const ClusterSummary& summary);
  // Of the failed workers, the one before `told` whose traceback came first; nullptr: none.
  const NodeProcess* FailedBefore(const cluster::NodeName& told) const;

 private:
  JobOutput& output_;
  Guard guard_;
  std::map<cluster::NodeName, NodeProcess> nodes_;
};

}  // namespace cairn::tool

// What each process of a job is told: its command line and its environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "cluster/environment/environment.h"
#include "cluster/supervise/process_end.h"
#include "cluster/supervise/worker_scale.h"
#include "launch_options.h"
#include "meeting_place.h"

namespace cairn::tool {

class NodeSetup {
 public:
  // All must live longer. `place` may get its port later.
  NodeSetup(const LaunchOptions& options, const cluster::Variables& variables, const MeetingPlace& place)
      : options_(options), variables_(variables), place_(place), program_(options.program) {}

  // Finds this program, the user's and, where that is a script, its Python. kNotFound: there is no such file.
  Status FindPrograms();
  // `folder`: the scheduler's. `mark`: by which the guard finds what the children start (guard.h).
  void SetFolder(const std::string& folder, const std::string& mark);
  // Divides the cores among the workers: each would take all for itself. What to say about it; empty:
  // nothing, the user has divided them.
  std::string DivideCores();

  // `last_port`: of the server that ran here before; 0: none did.
  std::vector<std::string> CommandOf(const cluster::NodeName& name, uint16_t last_port) const;
  std::vector<std::string> EnvironmentFor(const cluster::NodeName& name,
                                          const cluster::WorkerScale& workers) const;
  const std::string& self() const { return self_; }  // this program, for the scheduler and the servers

 private:
  std::vector<std::string> SchedulerCommand() const;
  std::vector<std::string> ServerCommand(uint32_t index, uint16_t last_port) const;
  void AddForWorker(uint32_t rank, const cluster::WorkerScale& workers, cluster::Variables& variables) const;

  const LaunchOptions& options_;
  const cluster::Variables& variables_;
  const MeetingPlace& place_;
  std::vector<std::string> program_;
  std::string self_, folder_, mark_;
  uint32_t worker_threads_ = 0;  // 0: as the user has it
};

}  // namespace cairn::tool

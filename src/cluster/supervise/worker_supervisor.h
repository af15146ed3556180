// The supervisor's decisions about workers: who is started again, told to go or given up, and how those of
// this launcher ended.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "cluster/supervise/job_verdict.h"
#include "cluster/supervise/restarts.h"
#include "cluster/supervise/running_nodes.h"
#include "cluster/supervise/supervise_action.h"
#include "cluster/supervise/supervise_options.h"
#include "cluster/supervise/worker_scale.h"

namespace cairn::cluster {

class WorkerSupervisor {
 public:
  struct Parts {
    RunningNodes& running;
    ActionList& actions;
    Restarts& restarts;
    JobVerdict& verdict;
  };
  WorkerSupervisor(const SuperviseOptions& options, const Parts& parts);

  void StartAll();
  // A failure: everything has to be stopped.
  std::optional<Failure> OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  // `cairn scale --workers`: so many in the whole job.
  void OnWanted(uint32_t wanted, int64_t now_ms);
  void OnSeen(const JobSeen& seen);
  // The workers of this launcher have all ended. One that left in good order is known to the scheduler: only
  // later are ranks given up that ended well without ever having joined or left the job.
  void OnAllEnded(int64_t now_ms) { next_give_up_ms_ = now_ms + options_.give_up_every_ms; }
  // Tells the scheduler, again and again, of ranks that do not come back: those that were given up, or `all`.
  void RepeatGiveUps(bool all, int64_t now_ms);
  void KillLate(int64_t now_ms);

  const WorkerScale& scale() const { return scale_; }
  // Of those that ended well: the ones that the scheduler had as done too, and the ones that it had to give
  // up. Of a job that no worker ever joined all are done.
  uint32_t done() const { return static_cast<uint32_t>(ended_well_.size()) - not_left(); }
  uint32_t not_left() const;
  uint32_t given_up() const { return static_cast<uint32_t>(given_up_.size()); }

 private:
  void DismissedEnded(const NodeName& node, const ProcessEnd& end);
  void EndedWell(uint32_t rank);
  void GiveUp(const NodeName& node);

  const SuperviseOptions& options_;
  Parts parts_;
  WorkerScale scale_;
  std::set<uint32_t> given_up_;  // ranks that the scheduler is told about
  std::set<uint32_t> ended_well_;
  std::set<uint32_t> given_up_seen_;  // of all ranks, as the scheduler said last
  int64_t next_give_up_ms_ = 0;
};

}  // namespace cairn::cluster

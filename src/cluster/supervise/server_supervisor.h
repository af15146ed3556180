// The supervisor's decisions about servers: which deaths the job survives, which of them are started again,
// and how many it should have.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "cluster/supervise/ended_processes.h"
#include "cluster/supervise/job_stages.h"
#include "cluster/supervise/job_verdict.h"
#include "cluster/supervise/restarts.h"
#include "cluster/supervise/running_nodes.h"
#include "cluster/supervise/server_scale.h"
#include "cluster/supervise/supervise_action.h"
#include "cluster/supervise/supervise_options.h"

namespace cairn::cluster {

class ServerSupervisor {
 public:
  struct Parts {
    RunningNodes& running;
    ActionList& actions;
    Restarts& restarts;
    JobVerdict& verdict;
    const JobStages& stages;
  };
  ServerSupervisor(const SuperviseOptions& options, const Parts& parts);

  void StartAll();
  // A failure: everything has to be stopped.
  std::optional<Failure> OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  // What the scheduler says of copies, owners and the job's end; then of how many servers there should be.
  void OnSeen(const JobSeen& seen);
  void FollowScale(const JobSeen& seen);
  // The new scheduler would wait for servers that its predecessor let go: it is told of them.
  void OnSchedulerStartedAgain() { ended_.OnSchedulerStartedAgain(); }
  // The scheduler has answered kEnded; until then TellEnded repeats it.
  void OnToldEnded(uint64_t uid) { ended_.OnTold(uid); }
  void TellEnded(int64_t now_ms);

  // Servers that died since every partition had its copies: "servers 0 and 1 died …", if there are several.
  std::string DeathsTogether() const;
  uint32_t given_up() const { return scale_.given_up(); }

 private:
  enum class Loss { kNone, kTables };
  Loss Died(const NodeName& node, const ProcessEnd& end, bool leaving, int64_t now_ms);
  bool MayHaveCopies(const ProcessEnd& server, bool leaving) const;
  bool JobIsOver() const;
  Failure LostTables(const NodeName& node, const ProcessEnd& end) const;
  uint32_t Count() const { return parts_.running.Count(wire::Role::kServer); }
  std::string ToHave(const std::string& then) const;  // "the job is to have 2 servers" + then

  const SuperviseOptions& options_;
  Parts parts_;
  ServerScale scale_;
  EndedProcesses ended_;
  std::set<uint32_t> died_;  // since every partition had more than one owner in sync
  uint32_t replicas_;
  bool job_over_ = false;  // the scheduler has said so
};

}  // namespace cairn::cluster

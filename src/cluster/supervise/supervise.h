// The decisions of `cairn run`: who is started when, who is restarted, when the job is over, whom
// to stop and with which exit code it all ends. A state machine without processes: the launcher
// (tools/cairn/launcher.h) tells it what happened and carries out what it asks for.
//
//   scheduler ready → servers and workers → the workers end → servers and scheduler leave → done
//
//   a worker killed by a signal      started again with its rank; then given up
//   a worker that exits not with 0   the job ends with its exit code
//   a scheduler killed by a signal   started again on the same port
//   a server killed by a signal      started again where others have copies of what it held (replicas);
//                                    then given up, as long as there are other servers; else the job ends
//   a server that ends with 0        has left; another is started if the scheduler wants as many
//   fewer workers are wanted         those with the highest ranks get SIGTERM, and their ranks are given up
//
// How often is a matter of restart_limit.h: workers that fall over again and again leave the cluster its own.
//
// A job over several machines has one launcher on each, with a share of the servers and workers. Node
// 0 has the scheduler; the others wait until it answers. A node whose workers are done stays until its
// servers leave, which they do when the job is over; what goes wrong on one node is told to the
// scheduler, and with it to all.
//
// The parts: job_stages.h (how far the job is), worker_supervisor.h, server_supervisor.h, job_verdict.h (how
// it ended), restarts.h, scheduler_silence.h. Here they are wired together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/supervise/job_stages.h"
#include "cluster/supervise/job_verdict.h"
#include "cluster/supervise/process_end.h"
#include "cluster/supervise/restarts.h"
#include "cluster/supervise/running_nodes.h"
#include "cluster/supervise/scheduler_silence.h"
#include "cluster/supervise/server_supervisor.h"
#include "cluster/supervise/supervise_action.h"
#include "cluster/supervise/supervise_options.h"
#include "cluster/supervise/worker_supervisor.h"

namespace cairn::cluster {

class Supervisor {
 public:
  explicit Supervisor(const SuperviseOptions& options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Each returns what to do now, in order. Times are monotonic milliseconds.
  std::vector<SuperviseAction> Begin(int64_t now_ms);
  // The scheduler listens. Also after a restart. Node 0 only; others learn it by OnSeen.
  std::vector<SuperviseAction> OnSchedulerReady(int64_t now_ms);
  std::vector<SuperviseAction> OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  // A node could not be started at all.
  std::vector<SuperviseAction> OnStartFailed(const NodeName& node, const std::string& why, int64_t now_ms);
  // Ctrl-C or SIGTERM: the first ends all in good order, the second kills.
  // SIGINT reaches the workers as such first, anything else as SIGTERM.
  std::vector<SuperviseAction> OnInterrupt(int signal, int64_t now_ms);
  // The launcher can't go on: everything is stopped.
  std::vector<SuperviseAction> OnTrouble(int exit_code, const std::string& why, int64_t now_ms);
  // An answer of the scheduler's, or that there was none. Needed where nodes > 1, and after kAsk.
  std::vector<SuperviseAction> OnSeen(const JobSeen& seen, int64_t now_ms);
  // `cairn scale --workers`: so many in the whole job.
  std::vector<SuperviseAction> OnWorkersWanted(uint32_t wanted, int64_t now_ms);
  // `cairn stop`: everything is stopped, workers first, with time to save.
  std::vector<SuperviseAction> OnStop(int64_t now_ms);
  std::vector<SuperviseAction> OnTick(int64_t now_ms);
  // The scheduler has answered kEnded; it is repeated until then.
  void OnToldEnded(uint64_t uid) { servers_.OnToldEnded(uid); }
  // The scheduler has said that the job has failed, and why.
  void OnFailure(const std::string& why) { verdict_.OnFailure(why); }
  // The last words of a node that is about to be reported ended.
  void OnReason(const std::string& why) { verdict_.OnLastWords(why); }

  bool finished() const { return stages_.done(); }
  bool interrupted() const { return interrupts_ > 0; }
  int exit_code() const { return verdict_.exit_code(); }
  // For the last line: what ended the job before its time; empty: nothing did.
  std::string cause() const { return verdict_.cause(servers_.DeathsTogether()); }
  const JobVerdict& verdict() const { return verdict_; }
  const WorkerSupervisor& workers() const { return workers_; }
  const ServerSupervisor& servers() const { return servers_; }
  uint32_t restarts() const { return restarts_.total(); }

 private:
  using Farewell = JobStages::Farewell;

  void StartAll();
  std::optional<Failure> SchedulerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms);
  // Stops everybody. The first cause's exit code stays.
  void Fail(const Failure& failure, int64_t now_ms, Farewell farewell = Farewell::kTerminate);
  // Another machine than node 0's.
  void FollowNode0(const JobSeen& seen, int64_t now_ms);
  void LookForNode0(int64_t now_ms);
  // Moves on when nothing holds the job back, and hands out what there is to do.
  std::vector<SuperviseAction> Settle(int64_t now_ms);

  const SuperviseOptions options_;
  ActionList actions_;
  RunningNodes running_;
  Restarts restarts_;
  JobVerdict verdict_;
  JobStages stages_;
  WorkerSupervisor workers_;
  ServerSupervisor servers_;
  SchedulerSilence silence_;
  int interrupts_ = 0;
};

}  // namespace cairn::cluster

// `cairn run` at work: real processes, their output, signals, driven by the decisions of
// cluster/supervise/supervise.h. One thread, besides the one that asks the scheduler.
//   launch_setup.cc   what each process is told
//   launch_watch.cc   progress, the first traceback, the summary
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/environment/environment.h"
#include "cluster/supervise/supervise.h"
#include "cluster/supervise/supervise_log.h"
#include "cluster/supervise/supervise_process.h"
#include "guard.h"
#include "job_files.h"
#include "job_wishes.h"
#include "log_folder.h"
#include "meeting_place.h"
#include "owner_lock.h"
#include "screen.h"
#include "status_poller.h"

namespace cairn::tool {

struct LaunchOptions {
  cluster::SuperviseOptions supervise;
  NodeFlags nodes;
  std::vector<std::string> program;  // and its arguments; with `module`: the arguments alone
  std::string module;                // python -m
  std::optional<uint32_t> threads;   // shard threads of a server
  std::optional<uint32_t> replicas, min_in_sync, slots;  // for the scheduler
  std::string log_dir;                                   // empty: a new folder of this user's
  bool no_logs = false;
  std::optional<bool> progress;  // not given: live on a terminal, else now and then
  double progress_every_s = 30;  // where it is not live
};

class Launcher {
 public:
  Launcher(LaunchOptions options, cluster::Variables variables);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Runs the job. The exit code is the workers'; see cluster/supervise/supervise.h.
  int Run();

 private:
  struct Node {
    cluster::Child child;  // pid -1: not running
    std::string prefix;    // "[worker 0] ", coloured on a terminal
    std::string plain_prefix;
    std::unique_ptr<cluster::OutputLines> lines;
    LogFile file;
    int64_t traceback_ms = 0;  // when it began to print its last one; 0: never
    cluster::ProcessEnd end;   // of its last process
    int ready_fd = -1;         // servers: the process writes here who it is, and where it listens
    std::string ready_text;    // what has come of it
    uint64_t uid = 0;          // servers: as it registers; 0: it has not said it yet
    wire::Endpoint endpoint;   // servers: of the last process; its successor takes the same port
    uint64_t gone = 0;         // servers: the incarnation of the last process that has ended
  };

  // launch_setup.cc
  Status Prepare();
  Status PrepareProgram();
  Status PrepareFolder();
  Status PrepareLogs();
  void PrepareThreads();
  Status PrepareSignals();
  std::vector<std::string> CommandOf(const cluster::NodeName& name) const;
  std::vector<std::string> EnvironmentFor(const cluster::NodeName& name) const;

  void Perform(std::vector<cluster::SuperviseAction> actions);
  void PerformOne(const cluster::SuperviseAction& action);
  void StartProcess(const cluster::NodeName& name);
  void ReadOwnWords(Node& node);
  void TakeOwnWord(Node& node, const std::string& line);
  // What the scheduler says of the server that runs, or has just ended, here.
  const ClusterSummary::Server* EntryOf(const Node& node, const ClusterSummary& summary) const;
  Node& NodeOf(const cluster::NodeName& name);
  void SignalGroup(const cluster::NodeName& name, int signal);
  void PollOnce();
  void ReadOutput(Node& node);
  void ReadReady();
  void ReadSignals();
  void Reap();
  void JudgeWithScheduler(const cluster::NodeName& name, Node& node);
  void JudgeServer(const cluster::NodeName& name, Node& node,
                   const ClusterSummary* now);  // nullptr: no answer
  void TakeEnd(Node& node);
  void FlushOutput();

  // launch_watch.cc
  void Say(const std::string& text);
  void SchedulerKnown();
  void ReadFinal(const std::string& line);
  void Watch();
  std::set<uint32_t> LeavingHere(const ClusterSummary& summary);
  void CheckSameJob(const ClusterSummary& summary);
  void Count(ClusterSummary& summary);
  void ShowProgress();
  void FollowWishes();
  void TellOfCopies(const ClusterSummary& summary);
  void TellOfStandstill(const ClusterSummary& summary);
  const Node* FirstToFail(const Node& told) const;
  void ShowLastLines(const cluster::NodeName& name);
  std::string Summary() const;

  LaunchOptions options_;
  cluster::Variables variables_;
  cluster::Supervisor supervisor_;
  Screen screen_;
  Guard guard_;
  OwnerLock folder_lock_;
  LogFolder logs_;
  LogFile own_log_;
  JobFile job_file_;
  StatusPoller poller_;
  std::deque<cluster::SuperviseAction> pending_;
  std::map<cluster::NodeName, Node> nodes_;
  std::string self_;    // this program, for the scheduler and the servers
  std::string mark_;    // in the environment of every child, for the guard
  std::string folder_;  // temporary, for the scheduler's log; removed at the end
  MeetingPlace place_;
  uint32_t worker_threads_ = 0;  // 0: as the user has it
  int signal_fd_ = -1;
  int ready_fd_ = -1;  // the scheduler writes its port here, and at the end what it has seen
  std::string ready_text_;
  bool colour_ = false;
  const int64_t started_ms_;
  int64_t next_progress_ms_ = 0, next_wishes_ms_ = 0;
  Following following_;  // as last written
  StatusPoller::Answer last_answer_;
  cluster::JobCounts counts_;
  double rounds_per_s_ = 0;
  bool silent_ = false;              // the scheduler has not answered the last question
  int64_t copying_since_ms_ = 0;     // some partition lacks a copy; 0: none does
  uint32_t complete_answers_ = 0;    // in a row, since then
  uint32_t standstill_answers_ = 0;  // in a row that say that requests wait for a server that is not there
  std::optional<ClusterSummary> final_;
  std::string first_to_fail_;  // "worker 1: ValueError: …", if it is not who ended first
};

}  // namespace cairn::tool

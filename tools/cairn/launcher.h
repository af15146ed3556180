// `cairn run` at work: real processes, their output, signals, driven by the decisions of
// cluster/supervise/supervise.h. One thread, besides the one that asks the scheduler. The parts:
//   node_setup.h, work_folder.h      what each process is told
//   node_processes.h                 the processes and what they print
//   scheduler_word.h, job_watch.h    what the scheduler is told, and what it says
//   job_output.h, progress_display.h, job_news.h, job_summary.h   what the user sees
//   wish_watch.h, signal_queue.h     what the user asks for while the job runs
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "cluster/environment/environment.h"
#include "cluster/supervise/supervise.h"
#include "job_files.h"
#include "job_news.h"
#include "job_output.h"
#include "job_watch.h"
#include "launch_options.h"
#include "meeting_place.h"
#include "node_processes.h"
#include "node_setup.h"
#include "progress_display.h"
#include "signal_queue.h"
#include "wish_watch.h"
#include "work_folder.h"

namespace cairn::tool {

class Launcher {
 public:
  Launcher(LaunchOptions options, cluster::Variables variables);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Runs the job. The exit code is the workers'; see cluster/supervise/supervise.h.
  int Run();

 private:
  Status Prepare();
  void Perform(std::vector<cluster::SuperviseAction> actions);
  void PerformOne(const cluster::SuperviseAction& action);
  void StartProcess(const cluster::NodeName& name);
  void PollOnce();
  void ReadSchedulersWords();
  void SchedulerKnown();
  void Reap();
  void Judge(const cluster::NodeName& name);
  void Watch();
  void FollowWishes();
  void FlushOutput();
  void ShowLastLines(const cluster::NodeName& name);
  int64_t elapsed_ms() const;

  const LaunchOptions options_;
  const cluster::Variables variables_;
  const int64_t started_ms_;
  cluster::Supervisor supervisor_;
  std::deque<cluster::SuperviseAction> pending_;
  MeetingPlace place_;
  WorkFolder folder_;
  JobOutput output_;
  NodeSetup setup_;
  NodeProcesses nodes_;
  SignalQueue signals_;
  JobFile job_file_;
  JobWatch watch_;
  JobNews news_;
  WishWatch wishes_;
  ProgressDisplay progress_;
  std::string first_to_fail_;  // JobSummary::first_to_fail
};

}  // namespace cairn::tool

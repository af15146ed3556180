// `cairn run` at work: real processes, their output, signals, driven by the decisions of
// cluster/supervise.h. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/environment.h"
#include "cluster/supervise.h"
#include "cluster/supervise_log.h"
#include "cluster/supervise_process.h"

namespace cairn::tool {

struct LaunchOptions {
  cluster::SuperviseOptions supervise;
  std::vector<std::string> program;  // and its arguments
  std::optional<uint32_t> threads;   // shard threads of a server
  std::string log_dir;               // empty: no files
};

class Launcher {
 public:
  Launcher(LaunchOptions options, cluster::Variables variables);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Runs the job. The exit code is the workers'; see cluster/supervise.h.
  int Run();

 private:
  struct Node {
    cluster::Child child;  // pid -1: not running
    std::string prefix;    // "[worker 0] ", coloured on a terminal
    std::string plain_prefix;
    std::unique_ptr<cluster::OutputLines> lines;
    std::ofstream file;
  };

  Status Prepare();
  void Perform(std::vector<cluster::SuperviseAction> actions);
  void PerformOne(const cluster::SuperviseAction& action);
  void StartProcess(const cluster::NodeName& name);
  Node& NodeOf(const cluster::NodeName& name);
  std::vector<std::string> CommandOf(const cluster::NodeName& name) const;
  std::vector<std::string> EnvironmentFor(const cluster::NodeName& name) const;
  void SignalGroup(const cluster::NodeName& name, int signal);
  void PollOnce();
  void ReadOutput(Node& node);
  void ReadReady();
  void ReadSignals();
  void Reap();
  void Say(const std::string& text);
  void ShowLastLines(const cluster::NodeName& name);
  void FlushOutput();

  LaunchOptions options_;
  cluster::Variables variables_;
  cluster::Supervisor supervisor_;
  std::deque<cluster::SuperviseAction> pending_;
  std::map<cluster::NodeName, Node> nodes_;
  std::string self_;       // this program, for the scheduler and the servers
  std::string state_dir_;  // the scheduler's log; removed at the end
  std::string cluster_id_;
  std::string master_port_;
  uint16_t scheduler_port_ = 0;  // 0: not known yet
  int signal_fd_ = -1;
  int ready_fd_ = -1;  // the scheduler writes its port here
  std::string ready_text_;
  bool colour_ = false;
  bool output_broken_ = false;
  std::string output_;
};

}  // namespace cairn::tool

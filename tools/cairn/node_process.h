// One node of the launcher: its process, its output behind a prefix, and what it says of itself. The object
// outlives the process: one that is started again is the same node.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "cluster/supervise/process_end.h"
#include "cluster/supervise/supervise_log.h"
#include "cluster/supervise/supervise_process.h"
#include "guard.h"
#include "job_output.h"
#include "line_pipe.h"
#include "log_folder.h"
#include "status_poller.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

class NodeProcess {
 public:
  // `output` and `guard` must live longer.
  NodeProcess(const cluster::NodeName& name, JobOutput& output, Guard& guard);
  ~NodeProcess();
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  // The scheduler and servers get a --ready-fd besides.
  Status Start(cluster::ChildOptions options);
  bool running() const { return child_.pid > 0; }
  // To its whole process group.
  void Signal(int signal);
  // True once the process has ended: its group is killed, and all of its output is read.
  bool TakeEnd();

  void ReadOutput();
  void FlushLines() { lines_.Flush(); }
  int output_fd() const { return child_.output_fd; }  // -1: closed
  // The scheduler: its port, and at the end what it has seen.
  std::vector<std::string> ReadWords() { return words_.Read(); }
  int words_fd() const { return words_.fd(); }
  // Servers: who it is and where it listens, if it came so far: others know it by that.
  void ReadOwnWords();

  // What the scheduler says of the server that runs, or has just ended, here.
  const ClusterSummary::Server* EntryIn(const ClusterSummary& summary) const;
  // The scheduler has had it with this incarnation, which has ended.
  void OnGone(uint64_t incarnation) { gone_ = incarnation; }

  const cluster::NodeName& name() const { return name_; }
  const cluster::ProcessEnd& end() const { return end_; }  // of its last process
  uint16_t last_port() const { return endpoint_.port; }    // servers: 0: none
  int64_t traceback_ms() const { return traceback_ms_; }   // when it began to print its last one; 0: never
  cluster::OutputLines::Ending ending() const { return lines_.ending(); }
  const std::string& prefix() const { return prefix_; }  // "[worker 0] ", coloured on a terminal

 private:
  void TakeLine(std::string_view line);
  void TakeOwnWord(const std::string& line);

  const cluster::NodeName name_;
  JobOutput& output_;
  Guard& guard_;
  const std::string plain_prefix_, prefix_;
  cluster::OutputLines lines_;
  LogFile file_;
  bool started_before_ = false;
  cluster::Child child_;  // pid -1: not running
  LinePipe words_;
  int64_t traceback_ms_ = 0;
  cluster::ProcessEnd end_;
  uint64_t uid_ = 0;         // servers: as it registers; 0: it has not said it yet
  wire::Endpoint endpoint_;  // servers: of the last process; its successor takes the same port
  uint64_t gone_ = 0;        // servers: the incarnation of the last process that has ended
};

}  // namespace cairn::tool

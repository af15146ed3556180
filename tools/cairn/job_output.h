// What a launcher prints and logs: its own lines, and those of its nodes, each behind a prefix.
#pragma once

#include <string>
#include <string_view>

#include "cairn/status.h"
#include "cluster/environment/environment.h"
#include "cluster/supervise/process_end.h"
#include "launch_options.h"
#include "log_folder.h"
#include "screen.h"

namespace cairn::tool {

class JobOutput {
 public:
  JobOutput(const LaunchOptions& options, const cluster::Variables& variables);

  // The folder that the user asked for, or a new one. Having none is only said.
  Status OpenLogs(const LaunchOptions& options, const cluster::Variables& variables);
  void OpenFile(LogFile& file, const std::string& name) { file.Open(logs_, name); }
  const std::string& log_folder() const { return logs_.path(); }  // empty: no logs

  // A line of the launcher's own.
  void Say(const std::string& text);
  // A line of a node's, on standard output; it goes out with the next Flush or Say.
  void Print(std::string_view prefix, std::string_view line);
  // A node's line again, on standard error.
  void Repeat(const std::string& prefix, const std::string& line) { screen_.Say(prefix + line); }
  // "[worker 0] ", in a colour of its own where there are colours.
  std::string PrefixFor(const cluster::NodeName& name) const;
  int Flush() { return screen_.Flush(); }  // Screen::Flush
  Screen& screen() { return screen_; }

 private:
  const bool colour_;
  Screen screen_;
  LogFolder logs_;
  LogFile own_log_;
};

}  // namespace cairn::tool

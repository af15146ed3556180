#include "job_output.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include "job_files.h"

namespace cairn::tool {
namespace {

using wire::Role;

// Nodes have their own colours, so that the eye can follow one.
std::string Coloured(const cluster::NodeName& name, const std::string& text) {
  static constexpr int kServers[] = {36, 96, 34, 94}, kWorkers[] = {32, 33, 92, 93};
  const int colour = name.role == Role::kScheduler ? 35
                     : name.role == Role::kServer  ? kServers[name.index % std::size(kServers)]
                                                   : kWorkers[name.index % std::size(kWorkers)];
  return "\033[" + std::to_string(colour) + "m" + text + "\033[0m";
}

}  // namespace

JobOutput::JobOutput(const LaunchOptions& options, const cluster::Variables& variables)
    : colour_(isatty(STDOUT_FILENO) == 1 && !variables.contains("NO_COLOR")),
      screen_(options.progress.value_or(true) && CanRedraw(options.progress.has_value())) {}

Status JobOutput::OpenLogs(const LaunchOptions& options, const cluster::Variables& variables) {
  if (options.no_logs) return Status::Ok();
  if (!options.log_dir.empty()) {
    Result<LogFolder> given = LogFolder::At(options.log_dir);
    if (!given.ok()) return {Code::kIo, "--log-dir " + given.status().message()};
    logs_ = std::move(given).value();
  } else {
    const std::string node = options.nodes.nodes > 1 ? "-node" + std::to_string(options.nodes.node_rank) : "";
    Result<LogFolder> made = LogFolder::New(variables, RandomLetters(6) + node);
    if (!made.ok()) {
      Say("no logs are kept: " + made.status().message() + " (--log-dir FOLDER gives another place)");
      return Status::Ok();
    }
    logs_ = std::move(made).value();
  }
  own_log_.Open(logs_, "cairn");
  own_log_.Write("[cairn] " + OwnCommand());
  return Status::Ok();
}

void JobOutput::Say(const std::string& text) {
  own_log_.Write("[cairn] " + text);
  own_log_.Flush();
  screen_.Say("[cairn] " + text);
}

void JobOutput::Print(std::string_view prefix, std::string_view line) {
  screen_.Print(prefix);
  screen_.Print(line);
  screen_.Print("\n");
}

std::string JobOutput::PrefixFor(const cluster::NodeName& name) const {
  const std::string prefix = "[" + ToString(name) + "] ";
  return colour_ ? Coloured(name, prefix) : prefix;
}

}  // namespace cairn::tool

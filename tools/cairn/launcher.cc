#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/check.h"
#include "commands.h"
#include "scheduler_call.h"

namespace cairn::tool {
namespace {

using cluster::NodeName;
using wire::Role;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Nodes have their own colours, so that the eye can follow one.
std::string Coloured(const NodeName& name, const std::string& text) {
  static constexpr int kServers[] = {36, 96, 34, 94}, kWorkers[] = {32, 33, 92, 93};
  const int colour = name.role == Role::kScheduler ? 35
                     : name.role == Role::kServer  ? kServers[name.index % std::size(kServers)]
                                                   : kWorkers[name.index % std::size(kWorkers)];
  return "\033[" + std::to_string(colour) + "m" + text + "\033[0m";
}

}  // namespace

Launcher::Launcher(LaunchOptions options, cluster::Variables variables)
    : options_(std::move(options)), variables_(std::move(variables)), supervisor_(options_.supervise) {}

Launcher::~Launcher() {
  if (signal_fd_ >= 0) close(signal_fd_);
  if (ready_fd_ >= 0) close(ready_fd_);
  std::error_code ignored;
  if (!state_dir_.empty()) std::filesystem::remove_all(state_dir_, ignored);
}

int Launcher::Run() {
  if (Status status = Prepare(); !status.ok()) return Complain(status.message());
  Perform(supervisor_.Begin(NowMs()));
  while (!supervisor_.finished()) PollOnce();
  for (auto& [name, node] : nodes_) {
    if (node.lines) node.lines->Flush();
  }
  FlushOutput();
  return supervisor_.exit_code();
}

void Launcher::Perform(std::vector<cluster::SuperviseAction> actions) {
  // What an action leads to comes after the actions that were asked for before it.
  const bool running = !pending_.empty();
  pending_.insert(pending_.end(), actions.begin(), actions.end());
  if (running) return;
  while (!pending_.empty()) {
    PerformOne(pending_.front());
    pending_.pop_front();
  }
}

void Launcher::PerformOne(const cluster::SuperviseAction& action) {
  using Kind = cluster::SuperviseAction::Kind;
  switch (action.kind) {
    case Kind::kStart: return StartProcess(action.node);
    case Kind::kTerminate: return SignalGroup(action.node, SIGTERM);
    case Kind::kKill: return SignalGroup(action.node, SIGKILL);
    case Kind::kSay: return Say(action.text);
    case Kind::kShowTail: return ShowLastLines(action.node);
    case Kind::kGiveUp: break;
  }
  constexpr int64_t kTellTimeoutMs = 500;
  if (scheduler_port_ == 0) return;
  // The supervisor repeats it, so one that fails is no error.
  (void)TellScheduler({"127.0.0.1", scheduler_port_}, wire::GiveUp{action.node.index}, kTellTimeoutMs);
}

Launcher::Node& Launcher::NodeOf(const NodeName& name) {
  Node& node = nodes_[name];
  if (node.lines) return node;
  node.plain_prefix = "[" + ToString(name) + "] ";
  node.prefix = colour_ ? Coloured(name, node.plain_prefix) : node.plain_prefix;
  if (!options_.log_dir.empty()) {
    std::string file = ToString(name);
    for (char& c : file) c = c == ' ' ? '-' : c;
    node.file.open(std::filesystem::path(options_.log_dir) / (file + ".log"), std::ios::app);
  }
  node.lines = std::make_unique<cluster::OutputLines>([this, &node](std::string_view line) {
    if (node.file.is_open()) node.file << line << '\n' << std::flush;
    // A program that names itself already is not named twice.
    if (line.starts_with(node.plain_prefix)) line.remove_prefix(node.plain_prefix.size());
    output_.append(node.prefix).append(line).append("\n");
  });
  return node;
}

void Launcher::StartProcess(const NodeName& name) {
  cluster::ChildOptions options;
  int ready[2] = {-1, -1};
  options.command = CommandOf(name);
  if (name.role == Role::kScheduler) {
    if (pipe2(ready, O_CLOEXEC | O_NONBLOCK) != 0) {
      return Perform(supervisor_.OnStartFailed(name, strerror(errno), NowMs()));
    }
    if (ready_fd_ >= 0) close(ready_fd_);
    ready_fd_ = ready[0];
    ready_text_.clear();
    options.keep_fd = ready[1];
    options.command.insert(options.command.end(), {"--ready-fd", std::to_string(ready[1])});
  }
  options.environment = EnvironmentFor(name);
  Result<cluster::Child> child = cluster::StartChild(options);
  if (ready[1] >= 0) close(ready[1]);
  if (!child.ok()) return Perform(supervisor_.OnStartFailed(name, child.status().message(), NowMs()));
  NodeOf(name).child = *child;
}

void Launcher::SignalGroup(const NodeName& name, int signal) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || found->second.child.pid <= 0) return;
  kill(-found->second.child.pid, signal);
  kill(-found->second.child.pid, SIGCONT);  // a stopped process ends too
}

void Launcher::PollOnce() {
  constexpr int kTickMs = 100;
  std::vector<pollfd> waits = {{signal_fd_, POLLIN, 0}, {ready_fd_, POLLIN, 0}};
  for (const auto& [name, node] : nodes_) waits.push_back({node.child.output_fd, POLLIN, 0});
  if (poll(waits.data(), waits.size(), kTickMs) > 0) {
    size_t at = 2;
    for (auto& [name, node] : nodes_) {
      if (waits[at++].revents != 0) ReadOutput(node);
    }
    if (waits[1].revents != 0) ReadReady();
    if (waits[0].revents != 0) ReadSignals();
  }
  FlushOutput();
  Reap();
  Perform(supervisor_.OnTick(NowMs()));
}

void Launcher::ReadOutput(Node& node) {
  char piece[64 * 1024];
  // A bound, so that one noisy process does not keep the others waiting.
  constexpr int kMaxPieces = 16;
  for (int i = 0; i < kMaxPieces && node.child.output_fd >= 0; ++i) {
    const ssize_t got = read(node.child.output_fd, piece, sizeof piece);
    if (got > 0) {
      node.lines->Feed({piece, static_cast<size_t>(got)});
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(std::exchange(node.child.output_fd, -1));
      node.lines->Flush();
    } else {
      return;
    }
  }
}

void Launcher::ReadReady() {
  char piece[32];
  const ssize_t got = read(ready_fd_, piece, sizeof piece);
  if (got > 0) {
    ready_text_.append(piece, static_cast<size_t>(got));
    return;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  close(std::exchange(ready_fd_, -1));
  const int port = atoi(ready_text_.c_str());
  if (port <= 0 || port > 65535) return;  // it ended without a word: Reap tells
  scheduler_port_ = static_cast<uint16_t>(port);
  Perform(supervisor_.OnSchedulerReady(NowMs()));
}

void Launcher::ReadSignals() {
  signalfd_siginfo came;
  while (read(signal_fd_, &came, sizeof came) == static_cast<ssize_t>(sizeof came)) {
    if (came.ssi_signo != SIGCHLD) {
      Perform(supervisor_.OnInterrupt(static_cast<int>(came.ssi_signo), NowMs()));
    }
  }
}

void Launcher::Reap() {
  for (auto& [name, node] : nodes_) {
    if (node.child.pid <= 0) continue;
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(node.child.pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0) continue;
    if (ended.si_pid == 0) continue;
    // What it has left behind in its group goes with it, while the group's number is still its own.
    kill(-node.child.pid, SIGKILL);
    waitpid(node.child.pid, nullptr, 0);
    node.child.pid = -1;
    ReadOutput(node);
    if (node.child.output_fd >= 0) close(std::exchange(node.child.output_fd, -1));
    node.lines->Flush();
    FlushOutput();
    cluster::ProcessEnd end;
    (ended.si_code == CLD_EXITED ? end.code : end.signal) = ended.si_status;
    Perform(supervisor_.OnEnd(name, end, NowMs()));
  }
}

void Launcher::Say(const std::string& text) {
  FlushOutput();
  LogLine("[cairn] " + text);
}

void Launcher::ShowLastLines(const NodeName& name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || found->second.lines->tail().empty()) return;
  Say("the last lines of " + ToString(name) + ":");
  for (const std::string& line : found->second.lines->tail()) LogLine(found->second.plain_prefix + line);
}

void Launcher::FlushOutput() {
  size_t at = 0;
  while (at < output_.size() && !output_broken_) {
    const ssize_t written = write(STDOUT_FILENO, output_.data() + at, output_.size() - at);
    if (written > 0) {
      at += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd wait{STDOUT_FILENO, POLLOUT, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      // Nobody reads any more (`cairn run … | head`): the job has no purpose.
      output_broken_ = true;
      output_.clear();
      Perform(supervisor_.OnInterrupt(SIGPIPE, NowMs()));
    }
  }
  output_.clear();
}

}  // namespace cairn::tool

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

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "commands.h"
#include "ready_words.h"
#include "scheduler_call.h"

namespace cairn::tool {
namespace {

using cluster::NodeName;
using wire::Role;

int64_t NowMs() { return MonotonicMs(); }

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
    : options_(std::move(options)),
      variables_(std::move(variables)),
      supervisor_(options_.supervise),
      screen_(options_.progress.value_or(true) && CanRedraw(options_.progress.has_value())),
      started_ms_(NowMs()) {}

Launcher::~Launcher() {
  if (signal_fd_ >= 0) close(signal_fd_);
  if (ready_fd_ >= 0) close(ready_fd_);
  for (auto& [name, node] : nodes_) {
    if (node.ready_fd >= 0) close(node.ready_fd);
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

int Launcher::Run() {
  if (Status status = Prepare(); !status.ok()) {
    Complain("run: " + status.message());
    constexpr int kNoProgram = 127;  // as a shell says it
    return status.code() == Code::kNotFound ? kNoProgram : status.code() == Code::kInvalidArgument ? 2 : 1;
  }
  if (options_.nodes.node_rank > 0) {
    Say("waiting for node 0 at " + wire::ToString(place_.scheduler));
    SchedulerKnown();
  }
  Perform(supervisor_.Begin(NowMs()));
  while (!supervisor_.finished()) PollOnce();
  for (auto& [name, node] : nodes_) {
    if (node.lines) node.lines->Flush();
  }
  FlushOutput();
  screen_.SetProgress("");
  Say(Summary());
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
    case Kind::kInterrupt: return SignalGroup(action.node, SIGINT);
    // A server would move its partitions away first, at SIGTERM.
    case Kind::kTerminate:
      return SignalGroup(action.node, action.node.role == Role::kServer ? SIGINT : SIGTERM);
    case Kind::kKill: return SignalGroup(action.node, SIGKILL);
    case Kind::kSay: return Say(action.text);
    case Kind::kShowTail: return ShowLastLines(action.node);
    case Kind::kAsk: return poller_.Hurry();
    case Kind::kGiveUp: break;
    case Kind::kEnded: break;
    case Kind::kAbort: break;
  }
  constexpr int64_t kTellTimeoutMs = 500, kAbortTimeoutMs = 2'000;
  if (place_.scheduler.port == 0) return;
  if (action.kind == Kind::kAbort) {
    // Its answer says that every node has been told. No answer: they will find out.
    (void)AskScheduler(place_.scheduler, wire::AbortJob{action.text}, kAbortTimeoutMs);
  } else if (action.kind == Kind::kEnded) {
    const wire::ProcessEnded word{action.ended.uid, action.ended.out_of_memory};
    const auto answer = AskScheduler(place_.scheduler, word, kTellTimeoutMs);
    if (answer.ok() && std::holds_alternative<wire::StatusReply>(*answer)) supervisor_.OnToldEnded(word.uid);
  } else {
    // The supervisor repeats it, so one that fails is no error.
    (void)TellScheduler(place_.scheduler, wire::GiveUp{action.node.index}, kTellTimeoutMs);
  }
}

Launcher::Node& Launcher::NodeOf(const NodeName& name) {
  Node& node = nodes_[name];
  if (node.lines) return node;
  node.plain_prefix = "[" + ToString(name) + "] ";
  node.prefix = colour_ ? Coloured(name, node.plain_prefix) : node.plain_prefix;
  std::string file = ToString(name);
  for (char& c : file) c = c == ' ' ? '-' : c;
  node.file.Open(logs_, file);
  node.lines = std::make_unique<cluster::OutputLines>([this, &node](std::string_view line) {
    node.file.Write(line);
    if (cluster::OutputLines::StartsTraceback(line)) node.traceback_ms = NowMs();
    // A program that names itself already is not named twice.
    if (line.starts_with(node.plain_prefix)) line.remove_prefix(node.plain_prefix.size());
    screen_.Print(node.prefix);
    screen_.Print(line);
    screen_.Print("\n");
  });
  return node;
}

void Launcher::StartProcess(const NodeName& name) {
  cluster::ChildOptions options;
  int ready[2] = {-1, -1};
  options.command = CommandOf(name);
  if (name.role != Role::kWorker) {
    if (pipe2(ready, O_CLOEXEC) != 0 || fcntl(ready[0], F_SETFL, O_NONBLOCK) != 0) {
      return Perform(supervisor_.OnStartFailed(name, strerror(errno), NowMs()));
    }
    int& kept = name.role == Role::kScheduler ? ready_fd_ : nodes_[name].ready_fd;
    if (kept >= 0) close(kept);
    kept = ready[0];
    if (name.role == Role::kScheduler) ready_text_.clear();
    if (name.role == Role::kServer) nodes_[name].ready_text.clear(), nodes_[name].uid = 0;
    options.keep_fd = ready[1];
    options.command.insert(options.command.end(), {"--ready-fd", std::to_string(ready[1])});
  }
  options.environment = EnvironmentFor(name);
  Result<cluster::Child> child = cluster::StartChild(options);
  if (ready[1] >= 0) close(ready[1]);
  if (!child.ok()) return Perform(supervisor_.OnStartFailed(name, child.status().message(), NowMs()));
  Node& node = NodeOf(name);
  node.child = *child;
  node.traceback_ms = 0;
  guard_.Add(child->pid);
}

// Who it is and where it listens, if it came so far: others know it by that.
void Launcher::ReadOwnWords(Node& node) {
  constexpr size_t kMaxBytes = 4096;
  while (node.ready_fd >= 0) {
    char piece[512];
    const ssize_t got = read(node.ready_fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;  // not yet
    if (got <= 0 || node.ready_text.size() > kMaxBytes) close(std::exchange(node.ready_fd, -1));
    if (got > 0) node.ready_text.append(piece, static_cast<size_t>(got));
  }
  for (size_t end; (end = node.ready_text.find('\n')) != std::string::npos;) {
    TakeOwnWord(node, node.ready_text.substr(0, end));
    node.ready_text.erase(0, end + 1);
  }
}

void Launcher::TakeOwnWord(Node& node, const std::string& line) {
  if (line.starts_with(kUidWord)) {
    node.uid = strtoull(line.c_str() + strlen(kUidWord), nullptr, 10);
  } else if (Result<wire::Endpoint> endpoint = cluster::ParseEndpoint("server", line); endpoint.ok()) {
    node.endpoint = *std::move(endpoint);
  }
}

// One that was started again on its port is not yet the one that the scheduler still has there.
const ClusterSummary::Server* Launcher::EntryOf(const Node& node, const ClusterSummary& summary) const {
  if (node.endpoint.port == 0) return nullptr;
  const std::string address = wire::ToString(node.endpoint);
  for (const ClusterSummary::Server& server : summary.each)
    if (server.endpoint == address && server.counts.incarnation > node.gone) return &server;
  return nullptr;
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
  Watch();
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
      break;
    }
  }
  node.file.Flush();
  if (const Status status = node.file.TakeError(); !status.ok()) Say(status.message());
}

void Launcher::ReadReady() {
  char piece[4096];
  const ssize_t got = ready_fd_ >= 0 ? read(ready_fd_, piece, sizeof piece) : -1;
  if (got == 0) close(std::exchange(ready_fd_, -1));
  if (got <= 0) return;
  constexpr size_t kMaxBytes = 64 * 1024 * 1024;  // of our own scheduler's status
  if (ready_text_.size() < kMaxBytes) ready_text_.append(piece, static_cast<size_t>(got));
  for (size_t end; (end = ready_text_.find('\n')) != std::string::npos;) {
    const std::string line = ready_text_.substr(0, end);
    ready_text_.erase(0, end + 1);
    const int port = atoi(line.c_str());
    if (line.starts_with("{")) {
      ReadFinal(line);
    } else if (port > 0 && port <= 65535) {
      place_.scheduler.port = static_cast<uint16_t>(port);
      SchedulerKnown();
      Perform(supervisor_.OnSchedulerReady(NowMs()));
    }
  }
}

void Launcher::ReadSignals() {
  signalfd_siginfo came;
  while (read(signal_fd_, &came, sizeof came) == static_cast<ssize_t>(sizeof came)) {
    if (came.ssi_signo != SIGCHLD) {
      Perform(supervisor_.OnInterrupt(static_cast<int>(came.ssi_signo), NowMs()));
    }
  }
}

// What the scheduler knows of a node that did not end well: a rank that is done may end as it likes, of
// a failed job the workers' errors are but the consequence, and a server may leave copies behind.
void Launcher::JudgeWithScheduler(const NodeName& name, Node& node) {
  constexpr int64_t kAskTimeoutMs = 500;
  node.end.left_job = false;
  node.end.has_copies.reset();
  node.end.servers.reset();
  const bool server = name.role == Role::kServer;
  if (name.role == Role::kScheduler || (node.end.clean() && !server) || place_.scheduler.port == 0) return;
  const Result<ClusterSummary> summary = AskSummary(place_.scheduler, kAskTimeoutMs);
  if (server) JudgeServer(name, node, summary.ok() ? &*summary : nullptr);
  if (!summary.ok() || server) return;
  const std::vector<uint32_t>& done = summary->done_ranks;
  node.end.left_job = node.end.signal != 0 && std::find(done.begin(), done.end(), name.index) != done.end();
  if (summary->phase == "failed") supervisor_.OnFailure(summary->failure);
}

void Launcher::JudgeServer(const NodeName& name, Node& node, const ClusterSummary* now) {
  const ClusterSummary* newest = now != nullptr         ? now
                                 : last_answer_.summary ? &*last_answer_.summary
                                                        : nullptr;
  if (newest == nullptr) return;
  const ClusterSummary::Server* entry = EntryOf(node, *newest);
  if (newest->phase == "running") {
    cluster::ServersSeen seen{newest->servers_wanted, LeavingHere(*newest)};
    // It ends well only if it was let go, and the scheduler has forgotten it by then.
    if ((entry != nullptr && entry->leaving) || (now != nullptr && node.end.clean()))
      seen.leaving.insert(name.index);
    node.end.servers = std::move(seen);
  }
  if (entry != nullptr) node.gone = entry->counts.incarnation;
  if (now != nullptr && now->phase == "running" && !node.end.clean())
    node.end.has_copies = now->copied_but_for(1);
}

void Launcher::Reap() {
  std::vector<std::pair<int64_t, NodeName>> ended;
  for (auto& [name, node] : nodes_) {
    if (node.child.pid <= 0) continue;
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(node.child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) continue;
    if (info.si_pid == 0) continue;
    (info.si_code == CLD_EXITED ? node.end.code : node.end.signal) = info.si_status;
    (info.si_code == CLD_EXITED ? node.end.signal : node.end.code) = 0;
    TakeEnd(node);
    ended.emplace_back(node.traceback_ms != 0 ? node.traceback_ms : INT64_MAX, name);
  }
  FlushOutput();
  // Of those that ended at the same time the one whose traceback came first is the cause.
  std::sort(ended.begin(), ended.end());
  for (const auto& [when, name] : ended) {
    if (name.role == Role::kScheduler) {
      while (ready_fd_ >= 0) {
        pollfd wait{ready_fd_, POLLIN, 0};
        if (poll(&wait, 1, 0) != 1) break;
        ReadReady();  // its last word, before its end is judged
      }
    }
    Node& node = nodes_.at(name);
    JudgeWithScheduler(name, node);
    const std::vector<std::string> words = node.lines->ending().lines;
    if (name.role != Role::kWorker && node.end.code != 0 && !words.empty()) {
      supervisor_.OnReason(words.back());
    }
    Perform(supervisor_.OnEnd(name, node.end, NowMs()));
  }
}

void Launcher::TakeEnd(Node& node) {
  // What it has left behind in its group goes with it, while the group's number is still its own.
  kill(-node.child.pid, SIGKILL);
  guard_.Remove(node.child.pid);
  waitpid(node.child.pid, nullptr, 0);
  node.child.pid = -1;
  ReadOwnWords(node);
  node.end.uid = node.uid;
  ReadOutput(node);
  if (node.child.output_fd >= 0) close(std::exchange(node.child.output_fd, -1));
  node.lines->Flush();
  node.file.Flush();
}

void Launcher::FlushOutput() {
  const int error = screen_.Flush();
  if (error == 0) return;
  if (error == EPIPE) {
    // Nobody reads any more (`cairn run … | head`): the job has no purpose.
    constexpr int kBrokenPipe = 128 + SIGPIPE;
    return Perform(supervisor_.OnTrouble(kBrokenPipe, "nobody reads the output any more", NowMs()));
  }
  Say(std::string("standard output can't be written to (") + strerror(error) +
      "): the job goes on without it" + (logs_.path().empty() ? "" : ", with logs in " + logs_.path()));
}

}  // namespace cairn::tool

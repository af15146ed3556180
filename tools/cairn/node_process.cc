#include "node_process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "cluster/environment/environment.h"
#include "ready_words.h"

namespace cairn::tool {
namespace {

constexpr size_t kMaxWordBytes = 4096;
constexpr size_t kMaxStatusBytes = 64 * 1024 * 1024;  // of our own scheduler's status

}  // namespace

NodeProcess::NodeProcess(const cluster::NodeName& name, JobOutput& output, Guard& guard)
    : name_(name),
      output_(output),
      guard_(guard),
      plain_prefix_("[" + ToString(name) + "] "),
      prefix_(output.PrefixFor(name)),
      lines_([this](std::string_view line) { TakeLine(line); }),
      words_(name.role == wire::Role::kScheduler ? kMaxStatusBytes : kMaxWordBytes) {}

NodeProcess::~NodeProcess() {
  if (child_.output_fd >= 0) close(child_.output_fd);
}

void NodeProcess::TakeLine(std::string_view line) {
  file_.Write(line);
  if (cluster::OutputLines::StartsTraceback(line)) traceback_ms_ = MonotonicMs();
  // A program that names itself already is not named twice.
  if (line.starts_with(plain_prefix_)) line.remove_prefix(plain_prefix_.size());
  output_.Print(prefix_, line);
}

Status NodeProcess::Start(cluster::ChildOptions options) {
  int ready = -1;
  if (name_.role != wire::Role::kWorker) {
    ready = words_.Open();
    if (ready < 0) return {Code::kIo, strerror(errno)};
    uid_ = 0;
    options.keep_fd = ready;
    options.command.insert(options.command.end(), {"--ready-fd", std::to_string(ready)});
  }
  Result<cluster::Child> child = cluster::StartChild(options);
  if (ready >= 0) close(ready);
  if (!child.ok()) return child.status();
  if (!std::exchange(started_before_, true)) {
    std::string file = ToString(name_);
    for (char& c : file) c = c == ' ' ? '-' : c;
    output_.OpenFile(file_, file);
  }
  child_ = *child;
  traceback_ms_ = 0;
  guard_.Add(child_.pid);
  return Status::Ok();
}

void NodeProcess::Signal(int signal) {
  if (!running()) return;
  kill(-child_.pid, signal);
  kill(-child_.pid, SIGCONT);  // a stopped process ends too
}

bool NodeProcess::TakeEnd() {
  if (!running()) return false;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(child_.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return false;
  if (info.si_pid == 0) return false;
  end_ = {};
  (info.si_code == CLD_EXITED ? end_.code : end_.signal) = info.si_status;
  // What it has left behind in its group goes with it, while the group's number is still its own.
  kill(-child_.pid, SIGKILL);
  guard_.Remove(child_.pid);
  waitpid(child_.pid, nullptr, 0);
  child_.pid = -1;
  if (name_.role == wire::Role::kServer) ReadOwnWords();
  end_.uid = uid_;
  ReadOutput();
  if (child_.output_fd >= 0) close(std::exchange(child_.output_fd, -1));
  lines_.Flush();
  file_.Flush();
  return true;
}

void NodeProcess::ReadOutput() {
  char piece[64 * 1024];
  // A bound, so that one noisy process does not keep the others waiting.
  constexpr int kMaxPieces = 16;
  for (int i = 0; i < kMaxPieces && child_.output_fd >= 0; ++i) {
    const ssize_t got = read(child_.output_fd, piece, sizeof piece);
    if (got > 0) {
      lines_.Feed({piece, static_cast<size_t>(got)});
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(std::exchange(child_.output_fd, -1));
      lines_.Flush();
    } else {
      break;
    }
  }
  file_.Flush();
  if (const Status status = file_.TakeError(); !status.ok()) output_.Say(status.message());
}

void NodeProcess::ReadOwnWords() {
  for (const std::string& line : words_.Read()) TakeOwnWord(line);
}

void NodeProcess::TakeOwnWord(const std::string& line) {
  if (line.starts_with(kUidWord)) {
    uid_ = strtoull(line.c_str() + strlen(kUidWord), nullptr, 10);
  } else if (Result<wire::Endpoint> endpoint = cluster::ParseEndpoint("server", line); endpoint.ok()) {
    endpoint_ = *std::move(endpoint);
  }
}

// One that was started again on its port is not yet the one that the scheduler still has there.
const ClusterSummary::Server* NodeProcess::EntryIn(const ClusterSummary& summary) const {
  if (endpoint_.port == 0) return nullptr;
  const std::string address = wire::ToString(endpoint_);
  for (const ClusterSummary::Server& server : summary.each)
    if (server.endpoint == address && server.counts.incarnation > gone_) return &server;
  return nullptr;
}

}  // namespace cairn::tool

#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

namespace cairn::tool {
namespace {

// Between fork and exec.
[[noreturn]] void BecomeGuard(const char* self, int input) {
  setsid();  // a Ctrl-C or hangup of the terminal is the launcher's affair
  const int nothing = open("/dev/null", O_WRONLY);
  dup2(input, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(nothing, STDERR_FILENO);
  char name[] = "cairn", command[] = "guard";
  char* const arguments[] = {name, command, nullptr};
  execv(self, arguments);
  _exit(127);
}

}  // namespace

void Guard::Start(const std::string& self, const std::string& folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) BecomeGuard(self.c_str(), ends[0]);
  close(ends[0]);
  fd_ = ends[1];
  if (pid_ < 0) return;
  // Never held up by it: the pipe is large for the little that is told.
  fcntl(fd_, F_SETFL, O_NONBLOCK);
  Tell('d', folder);
}

Guard::~Guard() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (fd_ >= 0) close(fd_);
}

void Guard::Tell(char what, const std::string& text) {
  if (pid_ <= 0) return;
  const std::string line = what + text + "\n";
  [[maybe_unused]] const ssize_t written = write(fd_, line.data(), line.size());
}

int RunGuard() {
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP}) signal(signal_number, SIG_IGN);
  std::set<pid_t> groups;
  std::string folder, text;
  char piece[4096];
  while (true) {
    const ssize_t got = read(STDIN_FILENO, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece, static_cast<size_t>(got));
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      const std::string line = text.substr(0, end);
      const pid_t group = line.size() > 1 ? atoi(line.c_str() + 1) : 0;
      if (line[0] == 'd') folder = line.substr(1);
      if (line[0] == '+' && group > 1) groups.insert(group);
      if (line[0] == '-') groups.erase(group);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  std::error_code ignored;
  const bool ours = std::filesystem::path(folder).filename().string().starts_with("cairn-run-");
  if (ours) std::filesystem::remove_all(folder, ignored);
  return 0;
}

}  // namespace cairn::tool

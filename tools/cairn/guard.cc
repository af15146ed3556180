#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

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

// Whether this process was started with the mark. What the environment is now, it does not tell; another
// user's, or one that has ended, does not tell anything.
bool HasMark(const std::string& pid, const std::string& mark) {
  std::ifstream file("/proc/" + pid + "/environ", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::string name = std::string(kMarkVariable) + "=";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    const std::string_view variable(text.data() + at, end - at);
    if (variable.starts_with(name) &&
        (":" + std::string(variable.substr(name.size())) + ":").find(":" + mark + ":") != std::string::npos)
      return true;
    at = end + 1;
  }
  return false;
}

// Kills every process that has the mark, also those that are started meanwhile.
void KillMarked(const std::string& mark) {
  constexpr int kMaxRounds = 200, kPauseMs = 10;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool any = false;
    std::error_code error;
    for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
         at.increment(error)) {
      const std::string pid = at->path().filename().string();
      if (pid.find_first_not_of("0123456789") != std::string::npos || !HasMark(pid, mark)) continue;
      any = kill(atoi(pid.c_str()), SIGKILL) == 0 || any;
    }
    if (!any) return;
    poll(nullptr, 0, kPauseMs);  // until they are gone, or what they started can be seen
  }
}

}  // namespace

void Guard::Start(const std::string& self, const std::string& folder, const std::string& mark) {
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
  Tell('m', mark);
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
  std::string folder, mark, text;
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
      if (line[0] == 'm') mark = line.substr(1);
      if (line[0] == '+' && group > 1) groups.insert(group);
      if (line[0] == '-') groups.erase(group);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  if (!mark.empty()) KillMarked(mark);
  std::error_code ignored;
  const bool ours = std::filesystem::path(folder).filename().string().starts_with("cairn-run-");
  if (ours) std::filesystem::remove_all(folder, ignored);
  return 0;
}

}  // namespace cairn::tool

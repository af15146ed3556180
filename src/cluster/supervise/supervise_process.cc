#include "cluster/supervise/supervise_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cairn::cluster {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  void CloseRead() {
    if (read >= 0) close(read);
    read = -1;
  }
  void CloseWrite() {
    if (write >= 0) close(write);
    write = -1;
  }
};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Status Failed(const std::string& what, int error) { return {Code::kIo, what + ": " + strerror(error)}; }

// Between fork and exec. Never returns; the error goes to the parent through `errors`.
[[noreturn]] void RunChild(const ChildOptions& options, char* const* arguments, char* const* environment,
                           pid_t parent, int output, int errors) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (options.keep_fd >= 0) fcntl(options.keep_fd, F_SETFD, 0);
  // A shell's background job ignores SIGINT, and Python would then never see a Ctrl-C.
  for (int number : {SIGPIPE, SIGINT, SIGTERM, SIGQUIT}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(errors, &error, sizeof error);
  _exit(127);
}

}  // namespace

Result<Child> StartChild(const ChildOptions& options) {
  Pipe output, errors;
  if (!output.Open() || !errors.Open()) return Failed("no pipe for a child process", errno);
  const std::vector<char*> arguments = Pointers(options.command), environment = Pointers(options.environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Failed("no process", errno);
  if (pid == 0) RunChild(options, arguments.data(), environment.data(), parent, output.write, errors.write);
  setpgid(pid, pid);  // in both, so that neither depends on the other being first
  errors.CloseWrite();
  int error = 0;
  ssize_t got;
  do {
    got = read(errors.read, &error, sizeof error);  // ends when exec closes the pipe
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    waitpid(pid, nullptr, 0);
    return Failed(options.command.front(), error);
  }
  Child child{pid, output.read};
  output.read = -1;
  fcntl(child.output_fd, F_SETFL, O_NONBLOCK);
  return child;
}

}  // namespace cairn::cluster

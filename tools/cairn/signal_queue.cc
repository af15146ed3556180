#include "signal_queue.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <string>

namespace cairn::tool {

SignalQueue::~SignalQueue() {
  if (fd_ >= 0) close(fd_);
}

Status SignalQueue::Open() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    struct sigaction before{};
    // Under nohup the terminal's end is not the job's.
    if (number == SIGHUP && sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler == SIG_IGN)
      continue;
    sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) return {Code::kIo, std::string("signalfd: ") + strerror(errno)};
  return Status::Ok();
}

std::optional<int> SignalQueue::Next() {
  signalfd_siginfo came;
  while (read(fd_, &came, sizeof came) == static_cast<ssize_t>(sizeof came))
    if (came.ssi_signo != SIGCHLD) return static_cast<int>(came.ssi_signo);
  return std::nullopt;
}

}  // namespace cairn::tool

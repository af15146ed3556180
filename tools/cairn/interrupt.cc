#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "commands.h"

namespace cairn::tool {
namespace {

constexpr int kWakeUp = SIGUSR1;  // from Disarm to the waiting thread

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, kWakeUp}) sigaddset(&set, signal);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Interrupt::~Interrupt() { Disarm(); }

void Interrupt::Arm(std::function<void(int)> stop) {
  thread_ = std::thread([this, stop = std::move(stop)] {
    const sigset_t set = Signals();
    int came = 0;
    while (sigwait(&set, &came) == 0 && came != kWakeUp) {
      if (signal_ != 0) _exit(128 + came);
      signal_ = came;
      PrintLine(std::string("told to stop by ") + (came == SIGINT ? "SIGINT" : "SIGTERM"));
      stop(came);
    }
  });
}

void Interrupt::Disarm() {
  if (!thread_.joinable()) return;
  pthread_kill(thread_.native_handle(), kWakeUp);
  thread_.join();
}

}  // namespace cairn::tool

// SIGINT and SIGTERM for a process that runs a node: what the first does is the caller's, the second
// ends the process at once.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace cairn::tool {

// Must be made before any other thread: it blocks the signals, and threads made later inherit that.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // `stop` is called once, with the signal, from a thread of this class's own, at the first one. It
  // should return soon: the second signal waits for it. What it refers to must live until Disarm.
  void Arm(std::function<void(int signal)> stop);
  void Disarm();
  // The signal that came, 0 if none.
  int signal() const { return signal_; }

 private:
  std::atomic<int> signal_ = 0;
  std::thread thread_;
};

}  // namespace cairn::tool

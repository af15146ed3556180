// SIGINT and SIGTERM for a process that runs a node: the first stops it in good order, the second
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

  // `stop` is called once, from a thread of this class's own, at the first signal. What it refers
  // to must live until Disarm.
  void Arm(std::function<void()> stop);
  void Disarm();
  // The signal that came, 0 if none.
  int signal() const { return signal_; }

 private:
  std::atomic<int> signal_ = 0;
  std::thread thread_;
};

}  // namespace cairn::tool

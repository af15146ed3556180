// A thread with an event loop. Everything of one role (its state machine, network and timers) lives
// on one loop, so nothing in it needs a lock. Waiting follows what was measured: a few pauses, then
// yielding for some tens of microseconds, then blocking; an idle loop uses no CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace boost::asio {
class io_context;
}

namespace cairn::transport {

class Loop {
 public:
  static constexpr int kPauses = 64;
  static constexpr int64_t kYieldUs = 50;

  // `name` is the thread's (15 characters are shown).
  explicit Loop(std::string name);
  ~Loop();  // Stop()
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Called on the loop's thread, first at once, then again after as many microseconds as it
  // returned. Set before Start.
  void SetTick(std::function<int64_t()> tick);
  void Start();
  // Ends the thread after the handler that runs now, and joins it. What was posted and has not run
  // is dropped. Not from the loop's own thread. After it, whatever lived on the loop may be
  // destroyed from the caller's thread.
  void Stop();
  // Runs `fn` on the loop's thread, in the order of the posts of one thread. From any thread, also
  // before Start.
  void Post(std::function<void()> fn);

  boost::asio::io_context& context();
  // Monotonic.
  static int64_t NowUs();

 private:
  struct Impl;
  void Run();
  bool SpinForWork();
  void ArmTick(int64_t after_us);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::transport

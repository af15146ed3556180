// Whether the program does nothing but wait for its calls: a thread of it sleeps in a wait, or did a
// moment ago (Python looks after signals between the slices of a wait). Only programs that begin all of
// their rounds and barriers on one thread can be judged: another thread could begin what the others wait
// for. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace cairn::client {

class UserWaits {
 public:
  static constexpr int64_t kBetweenSlicesUs = 500'000;

  // A round or a barrier begins on this thread.
  void NoteCaller() {
    const size_t here = std::hash<std::thread::id>{}(std::this_thread::get_id()) | 1;
    size_t first = 0;
    if (!caller_.compare_exchange_strong(first, here, std::memory_order_relaxed) && first != here)
      several_.store(true, std::memory_order_relaxed);
  }
  void Enter() { sleepers_.fetch_add(1, std::memory_order_relaxed); }
  void Leave(int64_t now_us) {
    left_us_.store(now_us, std::memory_order_relaxed);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  bool waits(int64_t now_us) const {
    return !several_.load(std::memory_order_relaxed) &&
           (sleepers_.load(std::memory_order_relaxed) > 0 ||
            now_us - left_us_.load(std::memory_order_relaxed) < kBetweenSlicesUs);
  }

 private:
  std::atomic<size_t> caller_{0};
  std::atomic<bool> several_{false};
  std::atomic<int> sleepers_{0};
  std::atomic<int64_t> left_us_{INT64_MIN / 2};
};

}  // namespace cairn::client

// The bound on a client's unacknowledged bytes: a push reserves its bytes before it is copied and
// gives them back when it has ended. The caller waits at the bound. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace cairn::client {

class UnackedBytes {
 public:
  explicit UnackedBytes(uint64_t bound) : bound_(bound) {}

  // True once `bytes` are reserved: when they fit, or nothing else is (a push larger than the
  // bound is let through alone). False at the deadline (monotonic microseconds) or after Close.
  bool Reserve(uint64_t bytes, int64_t deadline_us);
  void Free(uint64_t bytes);
  // Everybody who waits, and whoever comes later, gets false.
  void Close();
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t bound() const { return bound_; }

 private:
  bool TryReserve(uint64_t bytes);
  const uint64_t bound_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint32_t> waiters_{0};
  std::mutex mutex_;  // guards closed_ and the wait
  std::condition_variable room_;
  std::atomic<bool> closed_{false};
};

}  // namespace cairn::client

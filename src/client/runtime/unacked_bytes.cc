#include "client/runtime/unacked_bytes.h"

#include <chrono>

namespace cairn::client {

bool UnackedBytes::Reserve(uint64_t bytes, int64_t deadline_us) {
  if (closed_.load()) return false;
  if (bytes_.TryReserve(bytes)) return true;
  std::unique_lock lock(mutex_);
  // Sequentially consistent with Free: either it sees the waiter, or the waiter sees the room.
  waiters_.fetch_add(1);
  const auto until = std::chrono::steady_clock::time_point(std::chrono::microseconds(deadline_us));
  bool reserved = false;
  while (!closed_.load() && !(reserved = bytes_.TryReserve(bytes))) {
    if (room_.wait_until(lock, until) == std::cv_status::timeout) {
      reserved = !closed_.load() && bytes_.TryReserve(bytes);
      break;
    }
  }
  waiters_.fetch_sub(1);
  return reserved;
}

void UnackedBytes::Free(uint64_t bytes) {
  bytes_.Free(bytes);
  if (waiters_.load() == 0) return;
  std::lock_guard lock(mutex_);
  room_.notify_all();
}

void UnackedBytes::Close() {
  std::lock_guard lock(mutex_);
  closed_.store(true);
  room_.notify_all();
}

}  // namespace cairn::client

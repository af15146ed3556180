#include <chrono>

#include "client/runtime/unacked_bytes.h"

namespace cairn::client {

bool UnackedBytes::TryReserve(uint64_t bytes) {
  uint64_t now = bytes_.load();
  do {
    if (now != 0 && (bytes > bound_ || now > bound_ - bytes)) return false;
  } while (!bytes_.compare_exchange_weak(now, now + bytes));
  return true;
}

bool UnackedBytes::Reserve(uint64_t bytes, int64_t deadline_us) {
  if (closed_.load()) return false;
  if (TryReserve(bytes)) return true;
  std::unique_lock lock(mutex_);
  // Sequentially consistent with Free: either it sees the waiter, or the waiter sees the room.
  waiters_.fetch_add(1);
  const auto until = std::chrono::steady_clock::time_point(std::chrono::microseconds(deadline_us));
  bool reserved = false;
  while (!closed_.load() && !(reserved = TryReserve(bytes))) {
    if (room_.wait_until(lock, until) == std::cv_status::timeout) {
      reserved = !closed_.load() && TryReserve(bytes);
      break;
    }
  }
  waiters_.fetch_sub(1);
  return reserved;
}

void UnackedBytes::Free(uint64_t bytes) {
  bytes_.fetch_sub(bytes);
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

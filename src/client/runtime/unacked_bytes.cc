#include "client/runtime/unacked_bytes.h"

#include <chrono>

namespace cairn::client {

bool UnackedBytes::Reserve(uint64_t bytes, int64_t deadline_us) {
  if (closed_.load()) return false;
  if (bytes_.TryReserve(bytes)) return true;
  MutexLock lock(mutex_);
  // Sequentially consistent with Free: either it sees the waiter, or the waiter sees the room.
  waiters_.fetch_add(1);
  const auto until = Condition::Clock::time_point(std::chrono::microseconds(deadline_us));
  bool reserved = false;
  while (!closed_.load() && !(reserved = bytes_.TryReserve(bytes))) {
    if (!room_.WaitUntil(mutex_, until)) {
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
  MutexLock lock(mutex_);
  room_.WakeAll();
}

void UnackedBytes::Close() {
  MutexLock lock(mutex_);
  closed_.store(true);
  room_.WakeAll();
}

}  // namespace cairn::client

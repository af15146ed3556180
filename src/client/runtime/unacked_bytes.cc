#include "client/runtime/unacked_bytes.h"

#include <chrono>

namespace cairn::client {

bool UnackedBytes::Reserve(uint64_t bytes, int64_t deadline_us) {
  if (bytes_.TryReserve(bytes)) return true;
  MutexLock lock(mutex_);
  bytes_.BeginWait();
  const auto until = Condition::Clock::time_point(std::chrono::microseconds(deadline_us));
  bool reserved = false;
  while (!bytes_.closed() && !(reserved = bytes_.TryReserve(bytes))) {
    if (!room_.WaitUntil(mutex_, until)) {
      reserved = bytes_.TryReserve(bytes);
      break;
    }
  }
  bytes_.EndWait();
  return reserved;
}

void UnackedBytes::Free(uint64_t bytes) {
  if (!bytes_.Free(bytes)) return;
  MutexLock lock(mutex_);
  room_.WakeAll();
}

void UnackedBytes::Close() {
  MutexLock lock(mutex_);
  bytes_.Close();
  room_.WakeAll();
}

}  // namespace cairn::client

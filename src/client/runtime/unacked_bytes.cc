#include "client/runtime/unacked_bytes.h"

#include <chrono>

namespace cairn::client {

bool UnackedBytes::Reserve(uint64_t bytes, int64_t deadline_us) {
  if (bytes_.TryReserve(bytes)) return true;
  std::unique_lock lock(mutex_);
  bytes_.BeginWait();
  const auto until = std::chrono::steady_clock::time_point(std::chrono::microseconds(deadline_us));
  bool reserved = false;
  while (!bytes_.closed() && !(reserved = bytes_.TryReserve(bytes))) {
    if (room_.wait_until(lock, until) == std::cv_status::timeout) {
      reserved = bytes_.TryReserve(bytes);
      break;
    }
  }
  bytes_.EndWait();
  return reserved;
}

void UnackedBytes::Free(uint64_t bytes) {
  if (!bytes_.Free(bytes)) return;
  std::lock_guard lock(mutex_);
  room_.notify_all();
}

void UnackedBytes::Close() {
  std::lock_guard lock(mutex_);
  bytes_.Close();
  room_.notify_all();
}

}  // namespace cairn::client

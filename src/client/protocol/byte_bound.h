// The rule of a bound on bytes under way: something goes when it fits, or when nothing else is under way
// (what is larger than the bound goes alone). And the bound of one client's pushes, from before they are
// copied until they have ended, with how many callers wait at it; how they sleep is unacked_bytes.h's, what
// else they do room_wait.h's. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::client {

constexpr bool FitsBound(uint64_t under_way, uint64_t bytes, uint64_t bound) {
  return under_way == 0 || (bytes <= bound && under_way <= bound - bytes);
}

class ByteBound {
 public:
  explicit ByteBound(uint64_t bound) : bound_(bound) {}

  // Not after Close.
  bool TryReserve(uint64_t bytes) {
    if (closed()) return false;
    uint64_t now = bytes_.load();
    do {
      if (!FitsBound(now, bytes, bound_) && !(CAIRN_BUG(kBoundPassed) && now <= bound_)) return false;
    } while (!bytes_.compare_exchange_weak(now, now + bytes));
    return true;
  }
  // What was reserved. True: callers wait and have to be woken.
  bool Free(uint64_t bytes) {
    const uint64_t before = bytes_.fetch_sub(bytes);
    CAIRN_CHECK(before >= bytes);
    if (CAIRN_BUG(kNobodyWoken)) return false;
    return waiters_.load() > 0;
  }
  // Around a wait, and before its first try: sequentially consistent with Free, so that either that sees the
  // waiter, or the waiter sees the room.
  void BeginWait() { waiters_.fetch_add(1); }
  void EndWait() {
    const uint32_t before = waiters_.fetch_sub(1);
    CAIRN_CHECK(before > 0);
  }
  // Nothing more is reserved. Whoever waits has to be woken.
  void Close() { closed_.store(true); }
  bool closed() const { return closed_.load(); }

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t bound() const { return bound_; }

 private:
  const uint64_t bound_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace cairn::client

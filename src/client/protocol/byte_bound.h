// The rule of a bound on bytes under way: something goes when it fits, or when nothing else is under way
// (what is larger than the bound goes alone). And the bound of one client's pushes, from before they are
// copied until they have ended; who waits at it, and how, is unacked_bytes.h's. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace cairn::client {

constexpr bool FitsBound(uint64_t under_way, uint64_t bytes, uint64_t bound) {
  return under_way == 0 || (bytes <= bound && under_way <= bound - bytes);
}

class ByteBound {
 public:
  explicit ByteBound(uint64_t bound) : bound_(bound) {}

  bool TryReserve(uint64_t bytes) {
    uint64_t now = bytes_.load();
    do {
      if (!FitsBound(now, bytes, bound_)) return false;
    } while (!bytes_.compare_exchange_weak(now, now + bytes));
    return true;
  }
  // What was reserved.
  void Free(uint64_t bytes) {
    const uint64_t before = bytes_.fetch_sub(bytes);
    CAIRN_CHECK(before >= bytes);
  }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t bound() const { return bound_; }

 private:
  const uint64_t bound_;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace cairn::client

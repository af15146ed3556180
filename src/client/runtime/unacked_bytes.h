// The bound on a client's unacknowledged bytes: a push reserves its bytes before it is copied and gives
// them back when it has ended. The caller waits at the bound (byte_bound.h has the rule). Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "client/protocol/byte_bound.h"

namespace cairn::client {

class UnackedBytes {
 public:
  explicit UnackedBytes(uint64_t bound) : bytes_(bound) {}

  // True once `bytes` are reserved: when they fit, or nothing else is (a push larger than the
  // bound is let through alone). False at the deadline (monotonic microseconds) or after Close.
  bool Reserve(uint64_t bytes, int64_t deadline_us);
  void Free(uint64_t bytes);
  // Everybody who waits, and whoever comes later, gets false.
  void Close();
  uint64_t bytes() const { return bytes_.bytes(); }
  bool closed() const { return bytes_.closed(); }
  uint64_t bound() const { return bytes_.bound(); }

 private:
  ByteBound bytes_;
  std::mutex mutex_;  // guards the wait, and that it ends at Close
  std::condition_variable room_;
};

}  // namespace cairn::client

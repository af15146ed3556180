// The bound on a client's unacknowledged bytes: a push reserves its bytes before it is copied and gives
// them back when it has ended. The caller waits at the bound (byte_bound.h has the rule). Thread-safe.
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "client/protocol/byte_bound.h"

namespace cairn::client {

class UnackedBytes {
 public:
  explicit UnackedBytes(uint64_t bound) : bytes_(bound) {}

  // True once `bytes` are reserved: when they fit, or nothing else is (a push larger than the
  // bound is let through alone). False at the deadline (monotonic microseconds) or after Close.
  bool Reserve(uint64_t bytes, int64_t deadline_us) CAIRN_EXCLUDES(mutex_);
  void Free(uint64_t bytes) CAIRN_EXCLUDES(mutex_);
  // Everybody who waits, and whoever comes later, gets false.
  void Close() CAIRN_EXCLUDES(mutex_);
  uint64_t bytes() const { return bytes_.bytes(); }
  bool closed() const { return bytes_.closed(); }
  uint64_t bound() const { return bytes_.bound(); }

 private:
  ByteBound bytes_;
  Mutex mutex_;  // of the wait, and so that it ends at Close
  Condition room_;
};

}  // namespace cairn::client

// How a running node ends: some thread says with what, whoever waits gets it. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "cairn/status.h"

namespace cairn::transport {

// A node that is over gives its last frames so long to reach their peers.
inline constexpr int64_t kLastFlushUs = 1'000'000;

class NodeEnd {
 public:
  // The first one counts.
  void Set(Status result) {
    const MutexLock lock(mutex_);
    if (!result_) result_ = std::move(result);
    changed_.WakeAll();
  }
  Status Wait() {
    const MutexLock lock(mutex_);
    while (!result_) changed_.Wait(mutex_);
    return *result_;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::optional<Status> result_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::transport

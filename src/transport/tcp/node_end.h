// How a running node ends: some thread says with what, whoever waits gets it. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "cairn/status.h"

namespace cairn::transport {

// A node that is over gives its last frames so long to reach their peers.
inline constexpr int64_t kLastFlushUs = 1'000'000;

class NodeEnd {
 public:
  // The first one counts.
  void Set(Status result) {
    std::lock_guard lock(mutex_);
    if (!result_) result_ = std::move(result);
    changed_.notify_all();
  }
  Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_.has_value(); });
    return *result_;
  }

 private:
  std::mutex mutex_;  // guards result_
  std::condition_variable changed_;
  std::optional<Status> result_;
};

}  // namespace cairn::transport

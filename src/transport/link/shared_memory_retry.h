// When a connection that fell back to TCP is given up for one through shared memory: after a while, if
// possible while nothing is under way, and each time later than the time before. For whoever keeps a
// connection for long: a worker's to a shard, a shard's to a backup. No clock. No Backoff (backoff.h) either:
// the link works meanwhile, and no crowd comes back at one moment.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cairn::transport {

class SharedMemoryRetry {
 public:
  static constexpr int64_t kFirstUs = 5'000'000, kMostUs = 600'000'000;
  static constexpr int64_t kPatienceUs = 5'000'000;  // for a moment in which nothing is under way

  // There is a new connection. `fell_back`: Network::FellBack.
  void OnReady(bool fell_back, int64_t now_us) {
    due_us_ = 0;
    if (!fell_back) {
      wait_us_ = kFirstUs;
      return;
    }
    due_us_ = now_us + wait_us_;
    wait_us_ = std::min(2 * wait_us_, kMostUs);
  }
  void OnGone() { due_us_ = 0; }
  // `idle`: nothing is unanswered.
  bool Due(bool idle, int64_t now_us) const {
    return due_us_ != 0 && now_us >= due_us_ + (idle ? 0 : kPatienceUs);
  }

 private:
  int64_t due_us_ = 0;  // 0: there is nothing to gain
  int64_t wait_us_ = kFirstUs;
};

}  // namespace cairn::transport

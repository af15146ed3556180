// How long to wait before the next try: doubles from `min` to `max`, with jitter, so that many
// clients do not come back at the same moment.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"

namespace cairn::client {

class Backoff {
 public:
  Backoff(int64_t min_us, int64_t max_us, uint64_t seed)
      : min_us_(std::max<int64_t>(min_us, 1)),
        max_us_(std::max(max_us, min_us_)),
        next_us_(min_us_),
        random_(seed) {}
  int64_t Next() {
    const int64_t base = next_us_;
    next_us_ = std::min(max_us_, base * 2);
    return base + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(base) / 2 + 1));
  }
  void Reset() { next_us_ = min_us_; }

 private:
  const int64_t min_us_, max_us_;
  int64_t next_us_;
  Random random_;
};

}  // namespace cairn::client

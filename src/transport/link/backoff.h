// How long to wait before the next try: the pause doubles from the shortest to the longest, and up to half of
// it is added at random, so that not everybody comes back at the same moment. No clock of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"

namespace cairn {

class Backoff {
 public:
  struct Range {
    int64_t min_us = 20'000, max_us = 1'000'000;
  };
  Backoff(const Range& range, uint64_t seed)
      : min_us_(std::max<int64_t>(range.min_us, 1)),
        max_us_(std::max(range.max_us, min_us_)),
        next_us_(min_us_),
        random_(seed) {}

  int64_t Next() {
    const int64_t base = next_us_;
    next_us_ = std::min(2 * base, max_us_);
    return Jittered(base);
  }
  // The shortest pause. The one that Next() gives stays what it is.
  int64_t Shortest() { return Jittered(min_us_); }
  void Reset() { next_us_ = min_us_; }
  void set_max_us(int64_t us) {
    max_us_ = std::max(us, min_us_);
    next_us_ = std::min(next_us_, max_us_);
  }

 private:
  int64_t Jittered(int64_t base) { return base + random_.Between(0, base / 2); }

  const int64_t min_us_;
  int64_t max_us_;
  int64_t next_us_;
  Random random_;
};

}  // namespace cairn

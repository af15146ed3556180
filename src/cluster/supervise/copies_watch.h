// When the user is told that partitions are being copied, and that it is over: deaths and moves leave them
// with fewer copies than they should have, for a while. No clock.
#pragma once

#include <cstdint>
#include <optional>

namespace cairn::cluster {

class CopiesWatch {
 public:
  struct News {
    bool complete = false;  // else: copying has begun
    int64_t after_ms = 0;   // complete: since it began
  };
  // An answer of the scheduler of a job that runs. `complete`: all partitions have all their copies.
  std::optional<News> Next(bool complete, int64_t now_ms);

 private:
  std::optional<int64_t> copying_since_ms_;
  uint32_t complete_answers_ = 0;  // in a row, since then
};

}  // namespace cairn::cluster

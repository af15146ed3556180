// How often processes that were killed are started again: so often within a while, each process by itself
// (3/10min), or so often in the whole job, all of a kind together (a plain 3). No clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cairn/status.h"

namespace cairn::cluster {

struct RestartLimit {
  uint32_t count = 3;
  int64_t window_ms = 600'000;  // 0: the whole job
};
// "3", "3/10min", "5/1h": a number, and s, min, h or d.
Result<RestartLimit> ParseRestartLimit(std::string_view text);
std::string ToString(const RestartLimit& limit);  // "3 within 10 min", "3"

class RestartCounts {
 public:
  explicit RestartCounts(const RestartLimit& limit) : limit_(limit) {}
  // Counts one and says the how many-th it is; nothing: there is none left. Times never go back.
  std::optional<uint32_t> Take(uint32_t kind, uint32_t index, int64_t now_ms);
  const RestartLimit& limit() const { return limit_; }
  uint32_t total() const { return total_; }

 private:
  const RestartLimit limit_;
  uint32_t total_ = 0;
  // (kind, index), or (kind, 0) where all of a kind count together. Only those within the window.
  std::map<std::pair<uint32_t, uint32_t>, std::deque<int64_t>> times_;
};

}  // namespace cairn::cluster

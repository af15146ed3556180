#include "cluster/supervise/copies_watch.h"

#include <utility>

namespace cairn::cluster {

std::optional<CopiesWatch::News> CopiesWatch::Next(bool complete, int64_t now_ms) {
  if (!complete) {
    complete_answers_ = 0;
    if (copying_since_ms_) return std::nullopt;
    copying_since_ms_ = now_ms;
    return News{};
  }
  // Moves come a few at a time: only two answers in a row say that it is over.
  if (!copying_since_ms_ || ++complete_answers_ < 2) return std::nullopt;
  const int64_t began_ms = *std::exchange(copying_since_ms_, std::nullopt);
  return News{.complete = true, .after_ms = now_ms - began_ms};
}

}  // namespace cairn::cluster

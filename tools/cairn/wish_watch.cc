#include "wish_watch.h"

#include <utility>

namespace cairn::tool {

std::optional<Wishes> WishWatch::Look(const std::string& job_path, int64_t now_ms) {
  constexpr int64_t kLookEveryMs = 300;
  if (now_ms < next_ms_ || job_path.empty()) return std::nullopt;
  next_ms_ = now_ms + kLookEveryMs;
  return ReadWishes(job_path);
}

void WishWatch::Answer(const std::string& job_path, const cluster::WorkerScale& scale) {
  if (scale.has_one_to_call()) return;  // not yet: it still runs
  Following following{scale.wanted(), scale.called()};
  if (following != written_ && WriteFollowing(job_path, following).ok()) written_ = std::move(following);
}

}  // namespace cairn::tool

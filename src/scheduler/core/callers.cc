#include "scheduler/core/callers.h"

#include <algorithm>

namespace cairn::scheduler {

std::vector<ConnId> Callers::TakeLate(int64_t now_us) {
  std::vector<ConnId> late;
  std::erase_if(heard_us_, [&](const auto& item) {
    const bool silent = now_us - item.second >= idle_us_;
    if (silent) late.push_back(item.first);
    return silent;
  });
  while (heard_us_.size() > most_) {
    const auto oldest = std::min_element(heard_us_.begin(), heard_us_.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    late.push_back(oldest->first);
    heard_us_.erase(oldest);
  }
  return late;
}

}  // namespace cairn::scheduler

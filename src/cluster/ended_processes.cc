#include "cluster/ended_processes.h"

#include <limits>

namespace cairn::cluster {

void EndedProcesses::Add(uint64_t uid) {
  if (uid != 0 && next_ms_.size() < kMost) next_ms_.try_emplace(uid, std::numeric_limits<int64_t>::min());
}

std::vector<uint64_t> EndedProcesses::TakeDue(int64_t now_ms) {
  std::vector<uint64_t> due;
  for (auto& [uid, next_ms] : next_ms_) {
    if (now_ms < next_ms) continue;
    due.push_back(uid);
    next_ms = now_ms + again_ms_;
  }
  return due;
}

}  // namespace cairn::cluster

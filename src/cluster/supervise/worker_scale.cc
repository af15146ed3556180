#include "cluster/supervise/worker_scale.h"

#include <limits>

namespace cairn::cluster {

WorkerScale::WorkerScale(const Share& share) : share_(share), wanted_(share.nodes * share.workers) {
  for (uint32_t i = 0; i < share.workers; ++i) ranks_.insert(share.node_rank * share.workers + i);
}

WorkerScale::Change WorkerScale::Follow(uint32_t wanted, const std::set<uint32_t>& running, int64_t now_ms) {
  Change change;
  if (wanted == 0 || wanted == wanted_) return change;
  wanted_ = wanted;
  for (uint32_t rank : running) {
    if (rank < wanted || dismissed_.contains(rank)) continue;
    dismissed_[rank] = now_ms + share_.leave_grace_ms;
    called_.erase(rank);
    change.dismiss.push_back(rank);
  }
  for (auto it = gone_.begin(); it != gone_.end() && *it < wanted; it = gone_.erase(it))
    change.start.push_back(*it);
  if (share_.node_rank == 0) {
    for (uint32_t rank = share_.nodes * share_.workers; rank < wanted; ++rank)
      if (ranks_.insert(rank).second) change.start.push_back(rank);
  }
  called_.insert(change.start.begin(), change.start.end());
  return change;
}

bool WorkerScale::OnDismissedEnd(uint32_t rank) {
  dismissed_.erase(rank);
  if (rank < wanted_) {
    called_.insert(rank);
    return true;
  }
  gone_.insert(rank);
  return false;
}

std::vector<uint32_t> WorkerScale::TakeLate(int64_t now_ms) {
  std::vector<uint32_t> late;
  for (auto& [rank, until_ms] : dismissed_) {
    if (now_ms < until_ms) continue;
    until_ms = std::numeric_limits<int64_t>::max();
    late.push_back(rank);
  }
  return late;
}

}  // namespace cairn::cluster

#include "cluster/supervise/job_counts.h"

#include <algorithm>

namespace cairn::cluster {

uint64_t JobCounts::Count::Next(uint64_t now) {
  if (now < last) before += last - now;
  last = now;
  return before + now;
}

JobCounts::Totals JobCounts::Next(const std::vector<ServerCounts>& servers, int64_t now_ms) {
  std::map<uint64_t, ServerCounts> seen;
  uint64_t rounds = 0, pushes = 0;
  bool unheard = false;
  for (const ServerCounts& now : servers) {
    ServerCounts& server = seen[now.incarnation];
    if (const auto known = servers_.find(now.incarnation); known != servers_.end()) server = known->second;
    unheard = unheard || now.rounds < server.rounds;
    server.rounds = std::max(server.rounds, now.rounds);
    server.pushes = std::max(server.pushes, now.pushes);
    rounds = std::max(rounds, server.rounds);
    pushes += server.pushes;
  }
  servers_ = std::move(seen);
  Totals totals{rounds_.Next(rounds), pushes_.Next(pushes), rate_};
  // Old numbers with a new time would look like a standstill now and like a rush later.
  if (!unheard) totals.rounds_per_s = rate_ = Rate(totals.rounds, now_ms);
  return totals;
}

double JobCounts::Rate(uint64_t rounds, int64_t now_ms) {
  history_.emplace_back(now_ms, rounds);
  while (history_.size() > 2 && history_[1].first <= now_ms - kRateWindowMs) history_.pop_front();
  const auto [from_ms, from_rounds] = history_.front();
  if (now_ms - from_ms < 500) return 0;
  return static_cast<double>(rounds - from_rounds) * 1000.0 / static_cast<double>(now_ms - from_ms);
}

}  // namespace cairn::cluster

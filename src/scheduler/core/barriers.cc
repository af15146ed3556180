#include "scheduler/core/barriers.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::scheduler {

void Barriers::Begin(Incarnation node, uint64_t count) {
  const bool fresh = counts_.emplace(node, count).second;
  CAIRN_CHECK(fresh);
  ++changes_;
}

// Heartbeats may overtake each other on different connections: nothing here goes back.
void Barriers::Take(Incarnation node, uint64_t count) {
  const auto [it, first] = counts_.try_emplace(node, count);
  if (first || count > it->second) ++changes_;
  it->second = std::max(it->second, count);
}

bool Barriers::AllServersHeard() const {
  const auto& servers = journal_.state().servers;
  return std::all_of(servers.begin(), servers.end(),
                     [&](const wire::ServerInfo& server) { return Heard(server.incarnation); });
}

uint64_t Barriers::Count(Incarnation node) const {
  const auto it = counts_.find(node);
  return it == counts_.end() ? 0 : it->second;
}

uint64_t Barriers::Open() {
  const std::pair of(journal_.commits(), changes_);
  if (open_of_ == of) return open_;
  open_of_ = of;
  std::optional<uint64_t> smallest;
  for (const wire::WorkerInfo& worker : journal_.state().workers) {
    if (worker.join_view == ViewNumber(0)) continue;
    if (!Heard(worker.incarnation) && CAIRN_BUG(kBarrierForgotten)) continue;
    const uint64_t count = Count(worker.incarnation);
    smallest = std::min(smallest.value_or(count), count);
  }
  return open_ = smallest.value_or(0);
}

bool Barriers::TakeOpened() {
  const uint64_t open = Open();
  return open > std::exchange(told_, open);
}

std::optional<uint64_t> Barriers::SmallestCount(std::optional<Rank> except, uint32_t* unheard) const {
  std::optional<uint64_t> smallest;
  for (const wire::WorkerInfo& worker : journal_.state().workers) {
    if (except == worker.rank) continue;
    if (!Heard(worker.incarnation)) {
      if (worker.join_view == ViewNumber(0)) continue;  // has entered none yet
      *unheard = worker.rank.value;
      return std::nullopt;
    }
    const uint64_t count = Count(worker.incarnation);
    smallest = std::min(smallest.value_or(count), count);
  }
  return smallest.value_or(0);
}

}  // namespace cairn::scheduler

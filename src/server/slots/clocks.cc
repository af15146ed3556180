#include "server/slots/clocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {
namespace {
constexpr Round kNever{std::numeric_limits<uint64_t>::max()};
}  // namespace

void Clocks::SetWorkers(const wire::ClusterState& state) {
  std::vector<Worker> now;
  for (const wire::WorkerInfo& info : state.workers) {
    if (info.join_view == ViewNumber{0}) continue;
    const Worker* known = Find(info.incarnation);
    now.push_back(known != nullptr ? *known : Worker{info.incarnation, info.rank, false, false, Round{0}});
  }
  if (CAIRN_BUG(kDeadClockCounts)) {
    for (const Worker& one : workers_)
      if (std::ranges::none_of(now, [&](const Worker& w) { return w.incarnation == one.incarnation; }))
        now.push_back(one);
  }
  std::sort(now.begin(), now.end(), [](const Worker& a, const Worker& b) { return a.rank < b.rank; });
  workers_ = std::move(now);
  Recount();
}

Round Clocks::Worker::awaited() const { return done ? kNever : clock; }

void Clocks::Told(Incarnation worker, Round clock, bool done) {
  Worker* const one = Find(worker);
  CAIRN_CHECK(one != nullptr);
  one->told = true;
  if (clock < one->clock || (clock == one->clock && !done)) return;
  one->clock = clock;
  one->done = done;
  Recount();
}

Round Clocks::StartFor(Incarnation worker) const {
  Round start = kNever;
  for (const Worker& one : workers_)
    if (one.incarnation != worker && one.told) start = std::min(start, one.awaited());
  return start == kNever ? Round{0} : start;
}

std::vector<uint32_t> Clocks::RanksBelow(Round clock) const {
  std::vector<uint32_t> ranks;
  for (const Worker& one : workers_)
    if (one.awaited() < clock) ranks.push_back(one.rank.value);
  return ranks;
}

Clocks::Worker* Clocks::Find(Incarnation incarnation) {
  const auto it =
      std::ranges::find_if(workers_, [&](const Worker& one) { return one.incarnation == incarnation; });
  return it == workers_.end() ? nullptr : &*it;
}

const Clocks::Worker* Clocks::Find(Incarnation incarnation) const {
  return const_cast<Clocks*>(this)->Find(incarnation);
}

void Clocks::Recount() {
  lowest_ = kNever;
  for (const Worker& one : workers_)
    if (one.told || !CAIRN_BUG(kSilentNotAwaited)) lowest_ = std::min(lowest_, one.awaited());
}

}  // namespace cairn::server

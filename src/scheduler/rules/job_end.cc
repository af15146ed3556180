#include "scheduler/rules/job_end.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {

std::vector<uint32_t> OpenRanks(const DurableState& d) {
  std::set<uint32_t> ranks = d.joined_ranks;
  for (uint32_t rank = 0; rank < d.state.expected_workers; ++rank) ranks.insert(rank);
  for (const wire::WorkerInfo& worker : d.state.workers) ranks.erase(worker.rank.value);
  for (uint32_t rank : d.state.done_ranks) ranks.erase(rank);
  for (uint32_t rank : d.given_up_ranks) ranks.erase(rank);
  return {ranks.begin(), ranks.end()};
}

bool JobIsOver(const DurableState& d) { return !d.over() && d.state.workers.empty() && OpenRanks(d).empty(); }

void EndJob(DurableState& d) {
  CAIRN_CHECK(JobIsOver(d));
  if (!d.state.done_ranks.empty()) {
    d.state.phase = wire::Phase::kEnded;
    d.state.pending_view = ViewNumber(0);
    return;
  }
  const std::vector<uint32_t> lost(d.given_up_ranks.begin(), d.given_up_ranks.end());
  FailJob(d, "no worker finished: " + Listed("rank", lost) + (lost.size() == 1 ? " was" : " were") +
                 " given up; their own output says why they died");
}

void FailJob(DurableState& d, std::string reason) {
  CAIRN_CHECK(!d.over());
  d.state.phase = wire::Phase::kFailed;
  d.state.failure = std::move(reason);
  d.state.pending_view = ViewNumber(0);
}

}  // namespace cairn::scheduler

#include "scheduler/core/awaiting.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/rules/job_end.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/user_text.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {
namespace {
void AddSentence(const std::string& sentence, std::string* out) {
  if (!out->empty()) *out += "; ";
  *out += sentence;
}
}  // namespace

const std::string& Awaiting::Text() {
  const wire::ClusterState& state = journal_.state();
  // Every server reports for every state; who is awaited depends on it only while a view is pending.
  const uint64_t reports = state.pending_view != ViewNumber(0) ? views_.changes() : 0;
  const std::array<uint64_t, 4> of = {journal_.commits(), presence_.changes(), barriers_.changes(), reports};
  if (text_of_ == of) return text_;
  text_of_ = of;
  const DurableState& durable = journal_.durable();
  blocked_slots_ = !durable.running()
                       ? 0
                       : static_cast<uint32_t>(std::count_if(state.slots.begin(), state.slots.end(),
                                                             [&](const wire::SlotOwner& owner) {
                                                               return InSyncOwners(owner) < state.min_in_sync;
                                                             }));
  text_ = durable.forming() ? ToForm() : durable.running() ? WhileRunning() : std::string();
  return text_;
}

// "waiting for 1 of 2 servers (server 1) and 2 of 3 workers (ranks 1, 2)"
std::string Awaiting::ToForm() const {
  const wire::ClusterState& state = journal_.state();
  const std::vector<uint32_t> servers = MissingServers(journal_.durable()),
                              ranks = MissingRanks(journal_.durable());
  std::string text;
  if (!servers.empty())
    text = "waiting for " + std::to_string(servers.size()) + " of " +
           Count(state.expected_servers, "server") + " (" + Listed("server", servers) + ")";
  if (!ranks.empty())
    text += (text.empty() ? "waiting for " : " and ") + std::to_string(ranks.size()) + " of " +
            Count(state.expected_workers, "worker") + " (" + Listed("rank", ranks) + ")";
  return text;
}

// Servers that are missing, and what slots wait for because of it.
std::string Awaiting::Owners() const {
  const wire::ClusterState& state = journal_.state();
  std::string text;
  std::vector<uint32_t> silent;
  for (const wire::ServerInfo& server : state.servers)
    if (presence_.silent(server.incarnation)) silent.push_back(server.index);
  if (!silent.empty())
    AddSentence(Listed("server", silent) + (silent.size() == 1 ? " is" : " are") + " not heard", &text);
  const uint32_t staying = StayingServers(state);
  if (staying < state.expected_servers)
    AddSentence("waiting for " + std::to_string(state.expected_servers - staying) + " of " +
                    Count(state.expected_servers, "server"),
                &text);
  uint32_t single = 0;
  for (const wire::SlotOwner& owner : state.slots)
    single += InSyncOwners(owner) == 1 && state.replicas > 1 && state.expected_servers > 1 ? 1 : 0;
  if (blocked_slots_ > 0)
    AddSentence("requests to " + Count(blocked_slots_, "partition") + " wait: fewer than " +
                    std::to_string(state.min_in_sync) + " owners are in sync",
                &text);
  else if (single > 0)
    AddSentence(Count(single, "partition") + (single == 1 ? " has" : " have") + " only one owner in sync",
                &text);
  return text;
}

std::string Awaiting::WhileRunning() const {
  const wire::ClusterState& state = journal_.state();
  std::string text = Owners();
  if (state.pending_view != ViewNumber(0)) {
    const std::vector<uint32_t> servers = views_.NotHolding(state);
    if (!servers.empty())
      AddSentence("view " + std::to_string(state.pending_view.value) + ": " + Listed("server", servers) +
                      (servers.size() == 1 ? " has" : " have") + " not reported the open rounds",
                  &text);
  }
  // The next barrier, if anybody has entered it.
  uint64_t least = UINT64_MAX, most = 0;
  auto count_of = [&](const wire::WorkerInfo& worker) { return barriers_.Count(worker.incarnation); };
  for (const wire::WorkerInfo& worker : state.workers) {
    if (worker.join_view == ViewNumber(0)) continue;
    least = std::min(least, count_of(worker));
    most = std::max(most, count_of(worker));
  }
  if (most > least) {
    std::vector<uint32_t> ranks;
    for (const wire::WorkerInfo& worker : state.workers)
      if (worker.join_view != ViewNumber(0) && count_of(worker) == least) ranks.push_back(worker.rank.value);
    AddSentence("barrier " + std::to_string(least + 1) + ": " + Listed("rank", ranks) +
                    (ranks.size() == 1 ? " has" : " have") + " not arrived",
                &text);
  }
  if (const std::vector<uint32_t> dead = OpenRanks(journal_.durable()); !dead.empty())
    AddSentence(Listed("rank", dead) + (dead.size() == 1 ? " is" : " are") + " dead, not yet restarted",
                &text);
  return text;
}

}  // namespace cairn::scheduler

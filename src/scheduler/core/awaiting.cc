// Who is awaited for what, in the words that users read while they wait; and that they wait in vain.
#include <algorithm>

#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {
void AddSentence(std::string sentence, std::string* out) {
  if (!out->empty()) *out += "; ";
  *out += sentence;
}
}  // namespace

const std::string& SchedulerCore::Awaiting() {
  if (!awaiting_stale_) return awaiting_;
  awaiting_stale_ = false;
  const auto& slots = state().slots;
  blocked_slots_ = !durable_.running() ? 0 : static_cast<uint32_t>(
      std::count_if(slots.begin(), slots.end(), [&](const wire::SlotOwner& owner) {
        return InSyncOwners(owner) < state().min_in_sync;
      }));
  awaiting_ = durable_.forming()   ? AwaitedToForm()
              : durable_.running() ? AwaitedWhileRunning()
                                   : std::string();
  return awaiting_;
}

// "waiting for 1 of 2 servers (server 1) and 2 of 3 workers (ranks 1, 2)"
std::string SchedulerCore::AwaitedToForm() const {
  const std::vector<uint32_t> servers = MissingServers(durable_), ranks = MissingRanks(durable_);
  std::string text;
  if (!servers.empty())
    text = "waiting for " + std::to_string(servers.size()) + " of " +
           Count(state().expected_servers, "server") + " (" + Listed("server", servers) + ")";
  if (!ranks.empty())
    text += (text.empty() ? "waiting for " : " and ") + std::to_string(ranks.size()) + " of " +
            Count(state().expected_workers, "worker") + " (" + Listed("rank", ranks) + ")";
  return text;
}

// Servers that are missing, and what slots wait for because of it.
std::string SchedulerCore::AwaitedOwners() const {
  std::string text;
  std::vector<uint32_t> silent;
  for (const wire::ServerInfo& server : state().servers)
    if (const Live* live = FindLive(server.incarnation); live != nullptr && live->silent)
      silent.push_back(server.index);
  if (!silent.empty())
    AddSentence(Listed("server", silent) + (silent.size() == 1 ? " is" : " are") + " not heard", &text);
  const uint32_t staying = StayingServers(state());
  if (staying < state().expected_servers)
    AddSentence("waiting for " + std::to_string(state().expected_servers - staying) + " of " +
                    Count(state().expected_servers, "server"),
                &text);
  uint32_t single = 0;
  for (const wire::SlotOwner& owner : state().slots)
    single += InSyncOwners(owner) == 1 && state().replicas > 1 && state().expected_servers > 1 ? 1 : 0;
  if (blocked_slots_ > 0)
    AddSentence("requests to " + Count(blocked_slots_, "partition") + " wait: fewer than " +
                    std::to_string(state().min_in_sync) + " owners are in sync",
                &text);
  else if (single > 0)
    AddSentence(Count(single, "partition") + (single == 1 ? " has" : " have") + " only one owner in sync",
                &text);
  return text;
}

std::string SchedulerCore::AwaitedWhileRunning() const {
  std::string text = AwaitedOwners();
  if (state().pending_view != ViewNumber(0)) {
    const std::vector<uint32_t> servers = ServersNotHolding();
    if (!servers.empty())
      AddSentence("view " + std::to_string(state().pending_view.value) + ": " + Listed("server", servers) +
                      (servers.size() == 1 ? " has" : " have") + " not reported the open rounds",
                  &text);
  }
  // The next barrier, if anybody has entered it.
  uint64_t least = UINT64_MAX, most = 0;
  auto count_of = [&](const wire::WorkerInfo& worker) {
    const Live* live = FindLive(worker.incarnation);
    return live != nullptr && live->heard ? live->barrier_count : 0;
  };
  for (const wire::WorkerInfo& worker : state().workers) {
    if (worker.join_view == ViewNumber(0)) continue;
    least = std::min(least, count_of(worker));
    most = std::max(most, count_of(worker));
  }
  if (most > least) {
    std::vector<uint32_t> ranks;
    for (const wire::WorkerInfo& worker : state().workers)
      if (worker.join_view != ViewNumber(0) && count_of(worker) == least) ranks.push_back(worker.rank.value);
    AddSentence("barrier " + std::to_string(least + 1) + ": " + Listed("rank", ranks) +
                    (ranks.size() == 1 ? " has" : " have") + " not arrived",
                &text);
  }
  if (const std::vector<uint32_t> dead = OpenRanks(durable_); !dead.empty())
    AddSentence(Listed("rank", dead) + (dead.size() == 1 ? " is" : " are") + " dead, not yet restarted",
                &text);
  return text;
}

void SchedulerCore::OnBlocked(ConnId conn, const wire::Blocked& report, int64_t now_us) {
  const auto sender = bound_.find(conn);
  if (sender == bound_.end() || sender->second != report.incarnation) return;
  deadlocks_.Take(report, now_us);
  if (const auto verdict = deadlocks_.Verdict(report)) Send(conn, *verdict);
}

void SchedulerCore::LookForDeadlock(int64_t now_us) {
  if (!durable_.running() || now_us - deadlock_looked_us_ < options_.heartbeat_us) return;
  deadlock_looked_us_ = now_us;
  std::vector<DeadlockWatch::Worker> workers;
  for (const wire::WorkerInfo& worker : state().workers) {
    if (worker.join_view == ViewNumber(0)) continue;
    const Live* live = FindLive(worker.incarnation);
    const bool heard = live != nullptr && live->heard;
    // One that has not been heard yet may be in any barrier, and is not known to wait.
    workers.push_back({worker.incarnation, worker.rank, heard ? live->barrier_count : 0});
  }
  if (const std::string found = deadlocks_.Look(workers, now_us); !found.empty()) log_(found);
}

}  // namespace cairn::scheduler

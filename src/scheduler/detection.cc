// What time does: deaths, the grace for dead ranks, resent states, and when the process may go.
// Time only makes the scheduler suspect; the death itself is a record.
#include <algorithm>
#include <utility>

#include "scheduler/core.h"

namespace cairn::scheduler {
namespace {

// Drivers tick every 100 ms; a gap of three is no pause of the process yet.
constexpr int64_t kSmallestPauseUs = 300'000;
// A node whose connection broke is back within this, or has closed it itself.
constexpr int64_t kComeBackUs = 300'000;

}  // namespace

void SchedulerCore::OnTick(int64_t now_us) {
  if (!fatal_.ok()) return;
  NoticePause(now_us);
  DetectDeaths(now_us);
  GiveUpAfterGrace(now_us);
  LookAtTraffic(now_us);
  if (OwnersWorkWaits(now_us)) unsettled_ = true;
  Settle(now_us);
  if (fatal_.ok()) ResendStates(now_us);
}

// If this process did not run, it could not hear anybody either: that is no sign of their death.
void SchedulerCore::NoticePause(int64_t now_us) {
  const int64_t gap = now_us - std::exchange(last_tick_us_, now_us);
  if (gap <= std::max(options_.dead_after_us / 2, kSmallestPauseUs)) return;
  log_("the scheduler itself did not run for " + Seconds(gap) + ": everybody gets another " +
       Seconds(options_.dead_after_us) + " to be heard");
  for (auto& [incarnation, node] : live_) node.heard_us = now_us;
  if (no_workers_since_us_ >= 0) no_workers_since_us_ = now_us;
}

void SchedulerCore::OnWaited(int64_t waited_us) {
  for (auto& [incarnation, node] : live_) node.heard_us += waited_us;
  if (no_workers_since_us_ >= 0) no_workers_since_us_ += waited_us;
}

void SchedulerCore::DetectDeaths(int64_t now_us) {
  std::vector<wire::WorkerInfo> dead_workers;
  for (auto& [incarnation, node] : live_) {
    if (now_us - node.heard_us < options_.dead_after_us || node.silent) continue;
    node.silent = true;
    awaiting_stale_ = true;
    if (const wire::WorkerInfo* worker = state().FindWorker(incarnation)) dead_workers.push_back(*worker);
  }
  if (durable_.over()) return;
  std::erase_if(live_, [&](const auto& entry) {  // workers that left long ago
    return entry.second.silent && entry.second.conn == ConnId(0) &&
           durable_.FindNode(entry.first)->fate != NodeFate::kLive;
  });
  DetectLostServers(now_us);
  if (dead_workers.empty() || durable_.over()) return;
  DurableState next = Next();
  for (const wire::WorkerInfo& worker : dead_workers)
    RemoveWorker(next, worker.incarnation, NodeFate::kRetired);
  if (!Commit(std::move(next))) return;
  for (const wire::WorkerInfo& worker : dead_workers) {
    log_("worker " + std::to_string(worker.rank.value) + " is dead: not heard for " +
         Seconds(options_.dead_after_us) + "; the others go on without it");
    Retire(worker.incarnation, "worker " + std::to_string(worker.rank.value) + " was not heard for " +
                                   Seconds(options_.dead_after_us) + " and declared dead");
  }
}

void SchedulerCore::GiveUpAfterGrace(int64_t now_us) {
  if (!durable_.running() || no_workers_since_us_ < 0) return;
  if (now_us - no_workers_since_us_ < options_.rejoin_grace_us) return;
  const std::vector<uint32_t> open = OpenRanks(durable_);
  if (open.empty()) return;
  DurableState next = Next();
  next.given_up_ranks.insert(open.begin(), open.end());
  if (!Commit(std::move(next))) return;
  log_(Listed("rank", open) + (open.size() == 1 ? " is" : " are") + " given up: not restarted within " +
       Seconds(options_.rejoin_grace_us) + ", and nobody else is left");
}

void SchedulerCore::ResendStates(int64_t now_us) {
  for (const wire::ServerInfo& server : state().servers)
    if (Live* live = FindLive(server.incarnation)) SendStateIfBehind(*live, now_us);
  for (const wire::WorkerInfo& worker : state().workers)
    if (Live* live = FindLive(worker.incarnation)) SendStateIfBehind(*live, now_us);
}

// Leaving must not cost anybody the news: servers confirm; workers of a failed job have been heard
// with the state that says so; workers that left close when they have their LeaveReply, or come back
// for it if the connection broke. Each is awaited for as long as it could still be alive.
void SchedulerCore::UpdateFinished(int64_t now_us) {
  finished_ = false;
  if (!durable_.over() || now_us < stay_until_us_) return;
  for (const auto& [incarnation, live] : live_) {
    const NodeRecord* node = durable_.FindNode(incarnation);
    if (live.silent || node == nullptr) continue;
    const bool closed =
        live.conn == ConnId(0) && live.closed_us >= 0 && now_us - live.closed_us >= kComeBackUs;
    bool awaited = false;
    if (node->role == wire::Role::kServer)
      awaited = !live.end_confirmed;
    else if (node->fate == NodeFate::kLeft)
      awaited = !closed;
    else
      awaited = live.version < state().version && !(closed && live.state_sent == state().version);
    if (awaited) return;
  }
  finished_ = true;
}

}  // namespace cairn::scheduler

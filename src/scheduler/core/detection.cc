// What time does: deaths, the grace for dead ranks, resent states, and when the process may go.
// Time only makes the scheduler suspect; the death itself is a record.
#include <algorithm>
#include <set>
#include <utility>

#include "base/planted.h"
#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {

// Drivers tick every 100 ms; a gap of three is no pause of the process yet.
constexpr int64_t kSmallestPauseUs = 300'000;
// A node whose connection broke is back within this, or has closed it itself.
constexpr int64_t kComeBackUs = 300'000;

}  // namespace

void SchedulerCore::OnTick(int64_t now_us) {
  if (!fatal_.ok()) return;
  const int64_t since_last_us = now_us - last_tick_us_;
  NoticePause(now_us);
  LookForIsolation(now_us, since_last_us);
  CloseLateCallers(now_us);
  DetectDeaths(now_us);
  GiveUpAfterGrace(now_us);
  LookAtTraffic(now_us);
  LookForDeadlock(now_us);
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
  hearing_.ExcuseAll(now_us);
  if (no_workers_since_us_ >= 0) no_workers_since_us_ = now_us;
}

void SchedulerCore::OnWaited(int64_t waited_us) {
  hearing_.Excuse(waited_us);
  if (no_workers_since_us_ >= 0) no_workers_since_us_ += waited_us;
}

void SchedulerCore::LookForIsolation(int64_t now_us, int64_t since_last_us) {
  const bool before = hearing_.isolated();
  hearing_.Look(now_us, [&] { return GoesOnHere(now_us); });
  cut_off_ = !durable_.over() && hearing_.IsolatedUs(now_us) >= options_.dead_after_us;
  if (!hearing_.isolated()) return;
  // Nobody could come back meanwhile either.
  if (no_workers_since_us_ >= 0) no_workers_since_us_ += since_last_us;
  if (!before)
    log_("no node has been heard for " + Seconds(hearing_.IsolatedUs(now_us)) +
         ": this scheduler may be cut off, so it takes nobody for dead (for up to " +
         Seconds(options_.lost_after_us) + ")");
}

// A worker and an owner in sync of every slot are here, and heard.
bool SchedulerCore::GoesOnHere(int64_t now_us) const {
  if (!durable_.running()) return false;
  auto here = [&](Incarnation incarnation) {
    return hearing_.OnThisHost(incarnation) && hearing_.Lately(incarnation, now_us);
  };
  if (std::none_of(state().workers.begin(), state().workers.end(),
                   [&](const wire::WorkerInfo& worker) { return here(worker.incarnation); }))
    return false;
  std::set<uint32_t> servers;
  for (const wire::ServerInfo& server : state().servers)
    if (here(server.incarnation)) servers.insert(server.index);
  return std::all_of(state().slots.begin(), state().slots.end(), [&](const wire::SlotOwner& owner) {
    return servers.contains(owner.server) ||
           std::any_of(owner.backups.begin(), owner.backups.end(), [&](const wire::Backup& backup) {
             return backup.in_sync && servers.contains(backup.server);
           });
  });
}

void SchedulerCore::DetectDeaths(int64_t now_us) {
  std::vector<wire::WorkerInfo> dead_workers;
  for (auto& [incarnation, node] : live_) {
    const bool silent = hearing_.Overdue(incarnation, now_us);
    if (silent == node.silent) continue;
    node.silent = silent;
    awaiting_stale_ = true;
    if (!silent) continue;
    if (const wire::WorkerInfo* worker = state().FindWorker(incarnation)) dead_workers.push_back(*worker);
  }
  if (durable_.over()) return;
  std::erase_if(live_, [&](const auto& entry) {  // workers that left long ago
    const bool gone = entry.second.silent && entry.second.conn == ConnId(0) &&
                      durable_.FindNode(entry.first)->fate != NodeFate::kLive;
    if (gone) hearing_.Forget(entry.first);
    return gone;
  });
  DetectLostServers(now_us);
  if (dead_workers.empty() || durable_.over()) return;
  DurableState next = Next();
  for (const wire::WorkerInfo& worker : dead_workers)
    RemoveWorker(next, worker.incarnation, NodeFate::kRetired);
  if (!Commit(std::move(next))) return;
  for (const wire::WorkerInfo& worker : dead_workers) {
    const std::string name = "worker " + std::to_string(worker.rank.value);
    const std::string silence = "not heard for " + Seconds(options_.dead_after_us);
    const bool ended = hearing_.KnownDead(worker.incarnation);
    log_(name + " is dead: " + (ended ? kProcessEnded : silence) + "; the others go on without it");
    Retire(worker.incarnation, name + (ended ? " was said to have ended" : " was " + silence) + " and declared dead");
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
  if (finished_ || !durable_.over()) return;
  if (!durable_.end_told) {
    if (now_us < stay_until_us_) return;
    for (const auto& [incarnation, live] : live_)
      if (AwaitedAtEnd(incarnation, live, now_us)) return;
    NoteEndTold();
  }
  finished_ = true;
}

// For whoever starts with this state next, a standby above all: it would wait for nodes that are gone.
void SchedulerCore::NoteEndTold() {
  DurableState next = Next();
  next.end_told = !CAIRN_BUG(kEndToldForgotten);
  if (Status status = Persist(next); !status.ok())
    return log_("everybody knows that the job is over, but that could not be noted: " + status.ToString());
  durable_ = std::move(next);
  if (observer_ != nullptr) observer_->OnState(durable_.state);
}

bool SchedulerCore::AwaitedAtEnd(Incarnation incarnation, const Live& live, int64_t now_us) const {
  const NodeRecord* node = durable_.FindNode(incarnation);
  if (node == nullptr || hearing_.Lost(incarnation, now_us)) return false;
  const bool closed = live.conn == ConnId(0) && live.closed_us >= 0 && now_us - live.closed_us >= kComeBackUs;
  // One that is silent may only be cut off, as long as it has not closed its connection.
  if (live.silent && closed) return false;
  if (node->role == wire::Role::kServer) return !live.end_confirmed;
  if (node->fate == NodeFate::kLeft) return !closed;
  return live.version < state().version && !(closed && live.state_sent == state().version);
}

}  // namespace cairn::scheduler

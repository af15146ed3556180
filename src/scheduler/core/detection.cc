#include "scheduler/core/detection.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "scheduler/rules/job_end.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {

// Drivers tick every 100 ms; a gap of three is no pause of the process yet.
constexpr int64_t kSmallestPauseUs = 300'000;

// The nodes of this host could go on alone: a worker and an owner in sync of every slot are here, and heard.
bool GoesOnHere(const DurableState& durable, const Hearing& hearing, int64_t now_us) {
  if (!durable.running()) return false;
  const wire::ClusterState& state = durable.state;
  auto here = [&](Incarnation incarnation) {
    return hearing.OnThisHost(incarnation) && hearing.Lately(incarnation, now_us);
  };
  if (std::none_of(state.workers.begin(), state.workers.end(),
                   [&](const wire::WorkerInfo& worker) { return here(worker.incarnation); }))
    return false;
  std::set<uint32_t> servers;
  for (const wire::ServerInfo& server : state.servers)
    if (here(server.incarnation)) servers.insert(server.index);
  return std::all_of(state.slots.begin(), state.slots.end(), [&](const wire::SlotOwner& owner) {
    return servers.contains(owner.server) ||
           std::any_of(owner.backups.begin(), owner.backups.end(), [&](const wire::Backup& backup) {
             return backup.in_sync && servers.contains(backup.server);
           });
  });
}

}  // namespace

void Detection::NoticePauses(int64_t now_us) {
  const int64_t since_last_us = now_us - last_tick_us_;
  NoticePause(now_us);
  LookForIsolation(now_us, since_last_us);
}

// If this process did not run, it could not hear anybody either: that is no sign of their death.
void Detection::NoticePause(int64_t now_us) {
  const int64_t gap = now_us - std::exchange(last_tick_us_, now_us);
  if (gap <= std::max(options_.dead_after_us / 2, kSmallestPauseUs)) return;
  log_("the scheduler itself did not run for " + Seconds(gap) + ": everybody gets another " +
       Seconds(options_.dead_after_us) + " to be heard");
  presence_.ExcuseAll(now_us);
  if (no_workers_since_us_ >= 0) no_workers_since_us_ = now_us;
}

void Detection::OnWaited(int64_t waited_us) {
  presence_.Excuse(waited_us);
  if (no_workers_since_us_ >= 0) no_workers_since_us_ += waited_us;
}

void Detection::LookForIsolation(int64_t now_us, int64_t since_last_us) {
  const Hearing& hearing = presence_.hearing();
  const bool before = hearing.isolated();
  presence_.Look(now_us, [&] { return GoesOnHere(journal_.durable(), hearing, now_us); });
  cut_off_ = !journal_.durable().over() && hearing.IsolatedUs(now_us) >= options_.dead_after_us;
  if (!hearing.isolated()) return;
  // Nobody could come back meanwhile either.
  if (no_workers_since_us_ >= 0) no_workers_since_us_ += since_last_us;
  if (!before)
    log_("no node has been heard for " + Seconds(hearing.IsolatedUs(now_us)) +
         ": this scheduler may be cut off, so it takes nobody for dead (for up to " +
         Seconds(options_.lost_after_us) + ")");
}

void Detection::DetectDeaths(int64_t now_us) {
  std::vector<wire::WorkerInfo> dead_workers;
  for (const Incarnation id : presence_.FindSilent(now_us))
    if (const wire::WorkerInfo* worker = journal_.state().FindWorker(id)) dead_workers.push_back(*worker);
  if (journal_.durable().over()) return;
  std::vector<Incarnation> gone;  // workers that left long ago
  for (const auto& [id, connection] : connections_.nodes())
    if (presence_.silent(id) && connection.conn == ConnId(0) &&
        journal_.durable().FindNode(id)->fate != NodeFate::kLive)
      gone.push_back(id);
  for (const Incarnation id : gone) connections_.Forget(id);
  failover_.DetectLostServers(now_us);
  if (!dead_workers.empty() && !journal_.durable().over()) RemoveWorkers(dead_workers);
}

void Detection::RemoveWorkers(const std::vector<wire::WorkerInfo>& dead) {
  DurableState next = journal_.Next();
  for (const wire::WorkerInfo& worker : dead) RemoveWorker(next, worker.incarnation, NodeFate::kRetired);
  if (!journal_.Commit(std::move(next))) return;
  for (const wire::WorkerInfo& worker : dead) {
    const std::string name = "worker " + std::to_string(worker.rank.value);
    const std::string silence = "not heard for " + Seconds(options_.dead_after_us);
    const bool ended = presence_.hearing().KnownDead(worker.incarnation);
    log_(name + " is dead: " + (ended ? kProcessEnded : silence) + "; the others go on without it");
    connections_.Retire(worker.incarnation, name + (ended ? " was said to have ended" : " was " + silence) +
                                                " and declared dead");
  }
}

void Detection::GiveUpAfterGrace(int64_t now_us) {
  if (!journal_.durable().running() || no_workers_since_us_ < 0) return;
  if (now_us - no_workers_since_us_ < options_.rejoin_grace_us) return;
  const std::vector<uint32_t> open = OpenRanks(journal_.durable());
  if (open.empty()) return;
  DurableState next = journal_.Next();
  next.given_up_ranks.insert(open.begin(), open.end());
  if (!journal_.Commit(std::move(next))) return;
  log_(Listed("rank", open) + (open.size() == 1 ? " is" : " are") + " given up: not restarted within " +
       Seconds(options_.rejoin_grace_us) + ", and nobody else is left");
}

void Detection::NoteWorkers(int64_t now_us) {
  if (journal_.durable().running() && journal_.state().workers.empty()) {
    if (no_workers_since_us_ < 0) no_workers_since_us_ = now_us;
  } else {
    no_workers_since_us_ = -1;
  }
}

}  // namespace cairn::scheduler

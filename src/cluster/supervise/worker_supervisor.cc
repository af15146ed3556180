#include "cluster/supervise/worker_supervisor.h"

#include <algorithm>

#include "base/memory_limits.h"

namespace cairn::cluster {

using Kind = SuperviseAction::Kind;
using wire::Role;

WorkerSupervisor::WorkerSupervisor(const SuperviseOptions& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      scale_({options.nodes, options.node_rank, options.workers, options.dismiss_grace_ms}) {}

void WorkerSupervisor::StartAll() {
  for (uint32_t i = 0; i < options_.workers; ++i)
    parts_.running.Start({Role::kWorker, options_.node_rank * options_.workers + i});
}

std::optional<Failure> WorkerSupervisor::OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  if (scale_.IsDismissed(node.index)) {
    DismissedEnded(node, end);
    return std::nullopt;
  }
  if (end.clean()) {
    EndedWell(node.index);
    return std::nullopt;
  }
  const std::string what = ToString(node) + " " + ToString(end);
  const bool over = options_.node_rank == 0 && !parts_.running.Any(Role::kScheduler);
  if (end.signal != 0 && (end.left_job || over)) {
    parts_.actions.Say(what + " after it had left the job: it is not started again");
    EndedWell(node.index);
    parts_.verdict.Note(end.exit_code(), what + " after it had left the job");
    return std::nullopt;
  }
  if (end.signal == 0 && end.code != kStartAgainCode && end.code != kOutOfMemoryCode) {
    return Failure{.exit_code = end.code,
                   .cause = what,
                   .consequence = ": the job ends",
                   .secondary = true,
                   .tail = node};
  }
  if (parts_.restarts.Take(node, end, now_ms)) return std::nullopt;
  parts_.actions.Say(what + " and is given up: " + parts_.restarts.UsedUp());
  scale_.OnEnd(node.index);
  parts_.verdict.Note(end.exit_code(), what + " and was given up");
  GiveUp(node);
  return std::nullopt;
}

// It may have left in good order, or not have known what SIGTERM is about: it goes in any case.
void WorkerSupervisor::DismissedEnded(const NodeName& node, const ProcessEnd& end) {
  parts_.actions.Say(ToString(node) + " has gone, as it was told to" +
                     (end.clean() ? "" : " (" + ToString(end) + ")"));
  if (scale_.OnDismissedEnd(node.index)) {
    parts_.actions.Say(ToString(node) + " is wanted again: starting it");
    return parts_.running.Start(node);
  }
  GiveUp(node);
}

void WorkerSupervisor::EndedWell(uint32_t rank) {
  scale_.OnEnd(rank);
  ended_well_.insert(rank);
}

void WorkerSupervisor::GiveUp(const NodeName& node) {
  given_up_.insert(node.index);
  parts_.actions.Do(Kind::kGiveUp, node);
}

void WorkerSupervisor::OnWanted(uint32_t wanted, int64_t now_ms) {
  const uint32_t before = scale_.wanted();
  const WorkerScale::Change change = scale_.Follow(wanted, parts_.running.Indices(Role::kWorker), now_ms);
  if (scale_.wanted() == before) return;
  parts_.actions.Say("the job is to have " + std::to_string(wanted) + (wanted == 1 ? " worker" : " workers") +
                     (change.start.empty() ? "" : ": starting " + NamesOf(Role::kWorker, change.start)) +
                     (change.dismiss.empty()
                          ? ""
                          : ": " + NamesOf(Role::kWorker, change.dismiss) +
                                (change.dismiss.size() == 1 ? " is" : " are") + " told to go (SIGTERM)"));
  for (uint32_t rank : change.dismiss) parts_.actions.Do(Kind::kTerminate, {Role::kWorker, rank});
  for (uint32_t rank : change.start) {
    given_up_.erase(rank);
    parts_.running.Start({Role::kWorker, rank});
  }
}

void WorkerSupervisor::OnSeen(const JobSeen& seen) {
  given_up_seen_ = seen.anybody_joined ? seen.given_up : std::set<uint32_t>{};
}

void WorkerSupervisor::RepeatGiveUps(bool all, int64_t now_ms) {
  if (now_ms < next_give_up_ms_) return;
  next_give_up_ms_ = now_ms + options_.give_up_every_ms;
  for (uint32_t rank : scale_.ranks())
    if (all || given_up_.contains(rank)) parts_.actions.Do(Kind::kGiveUp, {Role::kWorker, rank});
}

void WorkerSupervisor::KillLate(int64_t now_ms) {
  for (uint32_t rank : scale_.TakeLate(now_ms)) {
    const NodeName worker{Role::kWorker, rank};
    parts_.actions.Say(ToString(worker) + " did not go within " +
                       std::to_string(options_.dismiss_grace_ms / 1000) + " s, and is killed");
    parts_.actions.Do(Kind::kKill, worker);
  }
}

uint32_t WorkerSupervisor::not_left() const {
  return static_cast<uint32_t>(std::count_if(ended_well_.begin(), ended_well_.end(),
                                             [&](uint32_t rank) { return given_up_seen_.contains(rank); }));
}

}  // namespace cairn::cluster

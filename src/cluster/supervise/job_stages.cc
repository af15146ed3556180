#include "cluster/supervise/job_stages.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace cairn::cluster {

using Kind = SuperviseAction::Kind;
using wire::Role;

void JobStages::StopWorkers(Farewell farewell, int64_t now_ms) {
  stage_ = Stage::kStoppingWorkers;
  softly_ = farewell == Farewell::kInterrupt;
  deadline_ms_ =
      now_ms + (farewell == Farewell::kTerminate ? options_.stop_grace_ms : options_.interrupt_grace_ms);
  running_.Tell(softly_ ? Kind::kInterrupt : Kind::kTerminate, Role::kWorker);
}

void JobStages::StopRest(int64_t now_ms) {
  stage_ = Stage::kStoppingRest;
  softly_ = false;
  deadline_ms_ = now_ms + options_.stop_grace_ms;
  running_.TellAllBut(Kind::kTerminate, Role::kWorker);
}

void JobStages::KillAll(int64_t now_ms) {
  stage_ = Stage::kStoppingRest;
  softly_ = false;
  deadline_ms_ = now_ms + options_.stop_grace_ms;
  running_.TellAll(Kind::kKill);
}

void JobStages::OnSchedulerLeft(int64_t now_ms) {
  if (!leaving()) return;
  scheduler_left_ = true;
  deadline_ms_ = std::min(deadline_ms_, now_ms + options_.late_server_grace_ms);
}

void JobStages::OnSeenLeaving(const JobSeen& seen) {
  if (leaving() && seen.asked_ms >= leaving_ms_ && !seen.over) unused_ = !seen.anybody_joined;
}

void JobStages::StopLate(int64_t now_ms) {
  if ((!leaving() && !stopping()) || now_ms < deadline_ms_) return;
  if (leaving() && scheduler_left_) return StopRest(now_ms);
  if (softly_) return StopWorkers(Farewell::kTerminate, now_ms);
  KillLate(now_ms);
}

void JobStages::KillLate(int64_t now_ms) {
  deadline_ms_ = now_ms + options_.stop_grace_ms;
  std::string names;
  for (const NodeName& node : running_.names()) {
    if (stage_ == Stage::kStoppingWorkers && node.role != Role::kWorker) continue;
    names += (names.empty() ? "" : ", ") + ToString(node);
    actions_.Do(Kind::kKill, node);
  }
  actions_.Say((leaving() ? "did not leave after the workers had ended, and is killed: "
                          : "did not stop when told to, and is killed: ") +
               names);
  stubborn_ = true;
  if (leaving()) stage_ = Stage::kStoppingRest;
}

void JobStages::Settle(int64_t now_ms) {
  if (running() && !running_.Any(Role::kWorker)) {
    stage_ = Stage::kLeaving;
    leaving_ms_ = now_ms;
    // Workers of other nodes may go on for as long as they like.
    constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    deadline_ms_ = options_.one_node() ? now_ms + options_.leave_grace_ms : kNever;
    if (!options_.one_node() && !running_.none())
      actions_.Say("the workers of this node are done: waiting for the others");
    actions_.Ask();
  }
  if (stage_ == Stage::kStoppingWorkers && !running_.Any(Role::kWorker)) StopRest(now_ms);
  if ((leaving() || stage_ == Stage::kStoppingRest) && running_.none()) stage_ = Stage::kDone;
}

}  // namespace cairn::cluster

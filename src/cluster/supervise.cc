#include "cluster/supervise.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cairn::cluster {

using Kind = SuperviseAction::Kind;

std::string ToString(const NodeName& node) {
  if (node.role == wire::Role::kScheduler) return "scheduler";
  return (node.role == wire::Role::kServer ? "server " : "worker ") + std::to_string(node.index);
}

std::string ToString(const ProcessEnd& end) {
  if (end.signal == 0) return "exited with code " + std::to_string(end.code);
  const char* name = sigdescr_np(end.signal);
  return "was killed by signal " + std::to_string(end.signal) +
         (name != nullptr ? " (" + std::string(name) + ")" : "");
}

Supervisor::Supervisor(const SuperviseOptions& options) : options_(options) {}

std::vector<SuperviseAction> Supervisor::Take() { return std::exchange(actions_, {}); }

void Supervisor::Start(const NodeName& node) {
  alive_.insert(node);
  Do(Kind::kStart, node);
}

bool Supervisor::AnyWorker() const {
  for (const NodeName& node : alive_) {
    if (node.role == wire::Role::kWorker) return true;
  }
  return false;
}

std::vector<SuperviseAction> Supervisor::Begin(int64_t now_ms) {
  next_give_up_ms_ = now_ms;
  Start({wire::Role::kScheduler, 0});
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnSchedulerReady(int64_t now_ms) {
  if (phase_ != Phase::kStarting) return Take();
  phase_ = Phase::kRunning;
  for (uint32_t i = 0; i < options_.servers; ++i) Start({wire::Role::kServer, i});
  for (uint32_t i = 0; i < options_.workers; ++i) Start({wire::Role::kWorker, i});
  Settle(now_ms);
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  CAIRN_CHECK(alive_.erase(node) == 1 && phase_ != Phase::kDone);
  if (!stopping()) {
    switch (node.role) {
      case wire::Role::kWorker: WorkerEnded(node, end, now_ms); break;
      case wire::Role::kServer: ServerEnded(node, end, now_ms); break;
      default: SchedulerEnded(node, end, now_ms); break;
    }
  }
  Settle(now_ms);
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnStartFailed(const NodeName& node, const std::string& why,
                                                       int64_t now_ms) {
  alive_.erase(node);
  constexpr int kCannotExecute = 127;  // as a shell says it
  Fail(kCannotExecute, ToString(node) + " can't be started: " + why, now_ms);
  Settle(now_ms);
  return Take();
}

bool Supervisor::TakeRestart(const NodeName& node, const ProcessEnd& end) {
  if (restarts_ >= options_.max_restarts) return false;
  ++restarts_;
  Say(ToString(node) + " " + ToString(end) + ": starting it again (" + std::to_string(restarts_) + " of " +
      std::to_string(options_.max_restarts) + ")");
  Start(node);
  return true;
}

void Supervisor::WorkerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  if (end.clean()) return;
  if (end.signal == 0) {
    tail_ = node;
    return Fail(end.code, ToString(node) + " " + ToString(end) + ": the job ends", now_ms);
  }
  if (TakeRestart(node, end)) return;
  Say(ToString(node) + " " + ToString(end) + " and is given up: " + std::to_string(restarts_) +
      " restarts are used up (--max-restarts)");
  if (!exit_code_) exit_code_ = end.exit_code();
  given_up_.insert(node.index);
  Do(Kind::kGiveUp, node);
}

void Supervisor::ServerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  // Servers leave when the workers have left the job, which may be well before their processes end.
  if (end.clean()) return;
  // A job whose workers never joined, or were all given up, is a failed one to its servers.
  if (phase_ == Phase::kLeaving && end.signal == 0) return;
  Fail(end.exit_code(),
       ToString(node) + " " + ToString(end) + ": its part of the tables is lost and the job ends", now_ms);
}

void Supervisor::SchedulerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  // It stays until every server that it knows has confirmed the end. One that is still here came
  // too late to be known, and nobody will tell it.
  if (phase_ == Phase::kLeaving && end.signal == 0) {
    scheduler_left_ = true;
    deadline_ms_ = std::min(deadline_ms_, now_ms + options_.late_server_grace_ms);
  }
  if (end.clean()) return;
  if (phase_ == Phase::kLeaving && end.signal == 0) return;
  if (end.signal != 0 && TakeRestart(node, end)) return;
  Fail(end.exit_code(), ToString(node) + " " + ToString(end) + ": the job ends", now_ms);
}

void Supervisor::Fail(int exit_code, const std::string& why, int64_t now_ms) {
  if (stopping()) return;  // what goes wrong now is only a consequence
  Say(why);
  if (!exit_code_) exit_code_ = exit_code;
  StopStage(Phase::kStoppingWorkers, now_ms);
}

void Supervisor::StopStage(Phase phase, int64_t now_ms) {
  phase_ = phase;
  deadline_ms_ = now_ms + options_.stop_grace_ms;
  for (const NodeName& node : alive_) {
    const bool worker = node.role == wire::Role::kWorker;
    if (worker == (phase == Phase::kStoppingWorkers)) Do(Kind::kTerminate, node);
  }
}

void Supervisor::Settle(int64_t now_ms) {
  if (phase_ == Phase::kRunning && !AnyWorker()) {
    phase_ = Phase::kLeaving;
    deadline_ms_ = now_ms + options_.leave_grace_ms;
    // A worker that left in good order is known to the scheduler: only later are ranks given up
    // that ended well without ever having joined or left the job.
    next_give_up_ms_ = now_ms + options_.give_up_every_ms;
  }
  if (phase_ == Phase::kStoppingWorkers && !AnyWorker()) StopStage(Phase::kStoppingRest, now_ms);
  if ((phase_ == Phase::kLeaving || phase_ == Phase::kStoppingRest) && alive_.empty()) {
    phase_ = Phase::kDone;
    if (stubborn_ && exit_code() == 0) exit_code_ = 1;
    if (tail_) Do(Kind::kShowTail, *tail_);
  }
}

std::vector<SuperviseAction> Supervisor::OnInterrupt(int signal, int64_t now_ms) {
  if (phase_ == Phase::kDone) return Take();
  ++interrupts_;
  if (!stopping()) {
    tail_.reset();
    Fail(128 + signal, "interrupted: stopping everything (again: kill it)", now_ms);
  } else {
    if (interrupts_ <= 2) Say("killing what is left");
    phase_ = Phase::kStoppingRest;
    deadline_ms_ = now_ms + options_.stop_grace_ms;
    for (const NodeName& node : alive_) Do(Kind::kKill, node);
  }
  Settle(now_ms);
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnTick(int64_t now_ms) {
  if ((phase_ == Phase::kRunning || phase_ == Phase::kLeaving) && now_ms >= next_give_up_ms_) {
    next_give_up_ms_ = now_ms + options_.give_up_every_ms;
    for (uint32_t rank = 0; rank < options_.workers; ++rank) {
      if (phase_ == Phase::kLeaving || given_up_.contains(rank))
        Do(Kind::kGiveUp, {wire::Role::kWorker, rank});
    }
  }
  if (phase_ == Phase::kLeaving && scheduler_left_ && now_ms >= deadline_ms_) {
    StopStage(Phase::kStoppingRest, now_ms);
  } else if ((phase_ == Phase::kLeaving || stopping()) && now_ms >= deadline_ms_) {
    deadline_ms_ = now_ms + options_.stop_grace_ms;
    std::string names;
    for (const NodeName& node : alive_) {
      if (phase_ == Phase::kStoppingWorkers && node.role != wire::Role::kWorker) continue;
      names += (names.empty() ? "" : ", ") + ToString(node);
      Do(Kind::kKill, node);
    }
    Say((phase_ == Phase::kLeaving ? "did not leave after the workers had ended, and is killed: "
                                   : "did not stop when told to, and is killed: ") +
        names);
    stubborn_ = true;
    if (phase_ == Phase::kLeaving) phase_ = Phase::kStoppingRest;
  }
  Settle(now_ms);
  return Take();
}

}  // namespace cairn::cluster

#include "cluster/supervise/supervise.h"

#include <signal.h>

#include "base/check.h"

namespace cairn::cluster {

using wire::Role;

Supervisor::Supervisor(const SuperviseOptions& options)
    : options_(options),
      running_(actions_),
      restarts_(options.max_restarts, running_, actions_),
      stages_(options_, running_, actions_),
      workers_(options_, {running_, actions_, restarts_, verdict_}),
      servers_(options_, {running_, actions_, restarts_, verdict_, stages_}),
      silence_(options) {}

std::vector<SuperviseAction> Supervisor::Begin(int64_t now_ms) {
  silence_.OnHeard(now_ms);
  if (options_.node_rank == 0) running_.Start({Role::kScheduler, 0});
  return actions_.Take();
}

void Supervisor::StartAll() {
  stages_.Run();
  servers_.StartAll();
  workers_.StartAll();
}

std::vector<SuperviseAction> Supervisor::OnSchedulerReady(int64_t now_ms) {
  if (!stages_.starting()) return actions_.Take();
  StartAll();
  return Settle(now_ms);
}

std::vector<SuperviseAction> Supervisor::OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  CAIRN_CHECK(running_.Remove(node) && !stages_.done());
  if (!stages_.stopping()) {
    const std::optional<Failure> failure = node.role == Role::kWorker   ? workers_.OnEnd(node, end, now_ms)
                                           : node.role == Role::kServer ? servers_.OnEnd(node, end, now_ms)
                                                                        : SchedulerEnded(node, end, now_ms);
    if (failure) Fail(*failure, now_ms);
  }
  verdict_.OnLastWords("");
  return Settle(now_ms);
}

std::optional<Failure> Supervisor::SchedulerEnded(const NodeName& node, const ProcessEnd& end,
                                                  int64_t now_ms) {
  if (end.signal == 0) stages_.OnSchedulerLeft(now_ms);
  if (end.clean()) return std::nullopt;
  if (stages_.leaving() && end.signal == 0 && (options_.one_node() || stages_.unused())) return std::nullopt;
  if (end.signal != 0 && restarts_.Take(node, end, now_ms)) {
    servers_.OnSchedulerStartedAgain();
    return std::nullopt;
  }
  const std::string words = end.signal == 0 ? verdict_.last_words() : "";
  return Failure{.exit_code = end.exit_code(),
                 .cause = ToString(node) + " " + ToString(end) + (words.empty() ? "" : ": " + words),
                 .consequence = end.signal != 0 ? ": " + restarts_.UsedUp() + ", and the job ends"
                                : words.empty() ? ": the job ends"
                                                : "; the job ends",
                 .secondary = end.signal == 0};
}

std::vector<SuperviseAction> Supervisor::OnStartFailed(const NodeName& node, const std::string& why,
                                                       int64_t now_ms) {
  running_.Remove(node);
  constexpr int kCannotExecute = 127;  // as a shell says it
  Fail({.exit_code = kCannotExecute, .cause = ToString(node) + " can't be started: " + why}, now_ms);
  return Settle(now_ms);
}

void Supervisor::Fail(const Failure& failure, int64_t now_ms, Farewell farewell) {
  if (stages_.stopping() || stages_.done()) return;  // what goes wrong now is only a consequence
  actions_.Say(verdict_.Fail(failure, servers_.DeathsTogether()));
  if (!options_.one_node() && !stages_.starting()) {
    const std::string why = "node " + std::to_string(options_.node_rank) + ": " + failure.cause;
    verdict_.OnAbort(why);
    actions_.Abort(why);
  }
  stages_.StopWorkers(farewell, now_ms);
}

std::vector<SuperviseAction> Supervisor::OnStop(int64_t now_ms) {
  if (stages_.stopping() || stages_.done()) return actions_.Take();
  verdict_.Forget();  // a worker that was given up: this is why it ends
  Fail({.exit_code = kStoppedCode,
        .cause = std::string(kStoppedWords),
        .consequence = ": stopping everything"},
       now_ms, Farewell::kTerminateWithTimeToSave);
  return Settle(now_ms);
}

std::vector<SuperviseAction> Supervisor::OnInterrupt(int signal, int64_t now_ms) {
  if (stages_.done()) return actions_.Take();
  ++interrupts_;
  if (!stages_.stopping()) {
    // As a terminal would have told the workers: Python raises KeyboardInterrupt.
    Fail({.exit_code = 128 + signal,
          .cause = "interrupted",
          .consequence = ": stopping everything (again: kill it)"},
         now_ms, signal == SIGINT ? Farewell::kInterrupt : Farewell::kTerminate);
  } else {
    if (interrupts_ <= 2) actions_.Say("killing what is left");
    stages_.KillAll(now_ms);
  }
  return Settle(now_ms);
}

std::vector<SuperviseAction> Supervisor::OnTrouble(int exit_code, const std::string& why, int64_t now_ms) {
  Fail({.exit_code = exit_code, .cause = why, .consequence = ": stopping everything"}, now_ms);
  return Settle(now_ms);
}

std::vector<SuperviseAction> Supervisor::OnWorkersWanted(uint32_t wanted, int64_t now_ms) {
  if (stages_.running()) workers_.OnWanted(wanted, now_ms);
  return actions_.Take();
}

std::vector<SuperviseAction> Supervisor::OnSeen(const JobSeen& seen, int64_t now_ms) {
  if (!seen.answered || stages_.done()) return actions_.Take();
  if (!stages_.starting() || !seen.over) silence_.OnHeard(now_ms);
  silence_.OnPatience(seen.lost_after_ms);
  verdict_.OnFailure(seen.failure);
  servers_.OnSeen(seen);
  workers_.OnSeen(seen);
  if (stages_.running() && !seen.over) servers_.FollowScale(seen);
  stages_.OnSeenLeaving(seen);
  if (options_.node_rank > 0) FollowNode0(seen, now_ms);
  // The scheduler would call it a failure that nobody came; of a program that ended well it is not.
  if (stages_.leaving() && options_.one_node() && exit_code() == 0 && stages_.unused()) {
    actions_.Say("no worker has used Cairn: the servers were not needed");
    stages_.StopRest(now_ms);
  }
  return Settle(now_ms);
}

void Supervisor::FollowNode0(const JobSeen& seen, int64_t now_ms) {
  // One that is over is an earlier job's, which is about to free the port.
  if (stages_.starting() && !seen.over) StartAll();
  if (!stages_.starting() && !stages_.unused() && !seen.failure.empty())
    Fail({.cause = seen.failure, .secondary = true}, now_ms);
}

void Supervisor::LookForNode0(int64_t now_ms) {
  std::optional<Failure> failure;
  if (stages_.starting()) failure = silence_.WhileStarting(now_ms);
  // Servers that have left say that the job is over, and then the scheduler may be gone.
  if ((stages_.running() || stages_.leaving()) && running_.Any(Role::kServer))
    failure = silence_.WhileNeeded(now_ms);
  if (failure) Fail(*failure, now_ms);
}

std::vector<SuperviseAction> Supervisor::OnTick(int64_t now_ms) {
  if (!stages_.stopping()) servers_.TellEnded(now_ms);
  if (stages_.running() || stages_.leaving()) workers_.RepeatGiveUps(stages_.leaving(), now_ms);
  if (stages_.running()) workers_.KillLate(now_ms);
  if (options_.node_rank > 0) LookForNode0(now_ms);
  stages_.StopLate(now_ms);
  return Settle(now_ms);
}

std::vector<SuperviseAction> Supervisor::Settle(int64_t now_ms) {
  const bool had_workers = stages_.running(), was_done = stages_.done();
  stages_.Settle(now_ms);
  if (had_workers && !stages_.running()) workers_.OnAllEnded(now_ms);
  if (!was_done && stages_.done()) {
    if (stages_.stubborn() && exit_code() == 0)
      verdict_.Note(1, "some processes did not leave by themselves");
    if (verdict_.tail()) actions_.Do(SuperviseAction::Kind::kShowTail, *verdict_.tail());
  }
  return actions_.Take();
}

}  // namespace cairn::cluster

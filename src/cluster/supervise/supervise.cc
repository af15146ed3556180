#include "cluster/supervise/supervise.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/memory_limits.h"

namespace cairn::cluster {

using Kind = SuperviseAction::Kind;

std::string ToString(const NodeName& node) {
  if (node.role == wire::Role::kScheduler) return "scheduler";
  return (node.role == wire::Role::kServer ? "server " : "worker ") + std::to_string(node.index);
}

std::string ToString(const ProcessEnd& end) {
  if (end.signal == 0 && end.code == kOutOfMemoryCode)
    return "ran out of memory (exit code " + std::to_string(end.code) + ")";
  if (end.signal == 0) return "exited with code " + std::to_string(end.code);
  const char* name = sigdescr_np(end.signal);
  return "was killed by signal " + std::to_string(end.signal) +
         (name != nullptr ? " (" + std::string(name) + ")" : "");
}

Supervisor::Supervisor(const SuperviseOptions& options)
    : options_(options),
      scale_({options.nodes, options.node_rank, options.workers, options.dismiss_grace_ms}),
      restarts_(options.max_restarts),
      ended_(options.give_up_every_ms),
      replicas_(options.replicas),
      servers_wanted_(options.nodes * options.servers) {}

std::vector<SuperviseAction> Supervisor::Take() { return std::exchange(actions_, {}); }

void Supervisor::Start(const NodeName& node) {
  alive_.insert(node);
  Do(Kind::kStart, node);
}

bool Supervisor::Any(wire::Role role) const {
  return std::any_of(alive_.begin(), alive_.end(), [&](const NodeName& node) { return node.role == role; });
}

NodeName Supervisor::Local(wire::Role role, uint32_t i) const {
  const uint32_t here = role == wire::Role::kServer ? options_.servers : options_.workers;
  return {role, options_.node_rank * here + i};
}

namespace {

// "cairn: the job has failed: server 1 is lost" → "server 1 is lost": whoever says it again says the rest.
std::string BareReason(std::string_view why) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view headline : {"cairn: ", "the job has failed: "}) {
      if (!why.starts_with(headline) || why.size() == headline.size()) continue;
      why.remove_prefix(headline.size());
      found = true;
    }
  }
  return std::string(why);
}

}  // namespace

void Supervisor::OnFailure(const std::string& why) {
  const std::string bare = BareReason(why);
  if (!bare.empty() && bare != aborted_) failure_seen_ = bare;
}

void Supervisor::OnReason(const std::string& why) { last_words_ = BareReason(why); }

std::string Supervisor::cause() const {
  if (!job_failed()) return cause_;
  const std::string deaths = DeathsTogether();
  return deaths.empty() ? failure_seen_ : deaths + ": " + failure_seen_;
}

uint32_t Supervisor::workers_not_left() const {
  return static_cast<uint32_t>(std::count_if(ended_well_.begin(), ended_well_.end(),
                                             [&](uint32_t rank) { return given_up_seen_.contains(rank); }));
}

std::vector<SuperviseAction> Supervisor::Begin(int64_t now_ms) {
  next_give_up_ms_ = heard_ms_ = now_ms;
  if (options_.node_rank == 0) Start({wire::Role::kScheduler, 0});
  return Take();
}

void Supervisor::StartAll() {
  phase_ = Phase::kRunning;
  for (uint32_t i = 0; i < options_.servers; ++i) Start(Local(wire::Role::kServer, i));
  for (uint32_t i = 0; i < options_.workers; ++i) Start(Local(wire::Role::kWorker, i));
}

std::vector<SuperviseAction> Supervisor::OnSchedulerReady(int64_t now_ms) {
  if (phase_ != Phase::kStarting) return Take();
  StartAll();
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
  last_words_.clear();
  Settle(now_ms);
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnStartFailed(const NodeName& node, const std::string& why,
                                                       int64_t now_ms) {
  alive_.erase(node);
  constexpr int kCannotExecute = 127;  // as a shell says it
  Fail({.exit_code = kCannotExecute, .cause = ToString(node) + " can't be started: " + why}, now_ms);
  Settle(now_ms);
  return Take();
}

bool Supervisor::TakeRestart(const NodeName& node, const ProcessEnd& end, int64_t now_ms,
                             const std::string& what_follows) {
  const std::optional<uint32_t> taken = restarts_.Take(static_cast<uint32_t>(node.role), node.index, now_ms);
  if (!taken) return false;
  Say(ToString(node) + " " + ToString(end) + ": starting it again (" + std::to_string(*taken) + " of " +
      ToString(restarts_.limit()) + ")" + what_follows);
  Start(node);
  return true;
}

// It may have left in good order, or not have known what SIGTERM is about: it goes in any case.
void Supervisor::DismissedEnded(const NodeName& node, const ProcessEnd& end) {
  Say(ToString(node) + " has gone, as it was told to" + (end.clean() ? "" : " (" + ToString(end) + ")"));
  if (scale_.OnDismissedEnd(node.index)) {
    Say(ToString(node) + " is wanted again: starting it");
    return Start(node);
  }
  given_up_.insert(node.index);
  Do(Kind::kGiveUp, node);
}

std::vector<SuperviseAction> Supervisor::OnWorkersWanted(uint32_t wanted, int64_t now_ms) {
  if (phase_ != Phase::kRunning) return Take();
  std::set<uint32_t> running;
  for (const NodeName& node : alive_)
    if (node.role == wire::Role::kWorker) running.insert(node.index);
  const uint32_t before = scale_.wanted();
  const WorkerScale::Change change = scale_.Follow(wanted, running, now_ms);
  if (scale_.wanted() == before) return Take();
  const auto names = [](const std::vector<uint32_t>& ranks) {
    std::string text = ranks.size() == 1 ? "worker " : "workers ";
    for (size_t i = 0; i < ranks.size(); ++i)
      text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
    return text;
  };
  Say("the job is to have " + std::to_string(wanted) + (wanted == 1 ? " worker" : " workers") +
      (change.start.empty() ? "" : ": starting " + names(change.start)) +
      (change.dismiss.empty() ? ""
                              : ": " + names(change.dismiss) + (change.dismiss.size() == 1 ? " is" : " are") +
                                    " told to go (SIGTERM)"));
  for (uint32_t rank : change.dismiss) Do(Kind::kTerminate, {wire::Role::kWorker, rank});
  for (uint32_t rank : change.start) {
    given_up_.erase(rank);
    Start({wire::Role::kWorker, rank});
  }
  return Take();
}

std::string Supervisor::UsedUp() const {
  const RestartLimit& limit = restarts_.limit();
  std::string text = ToString(limit);
  text.insert(std::to_string(limit.count).size(), limit.count == 1 ? " restart" : " restarts");
  return text + (limit.count == 1 ? " is" : " are") + " used up (--max-restarts)";
}

void Supervisor::WorkerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  if (scale_.IsDismissed(node.index)) return DismissedEnded(node, end);
  if (end.clean()) {
    scale_.OnEnd(node.index);
    ended_well_.insert(node.index);
    return;
  }
  const std::string what = ToString(node) + " " + ToString(end);
  const bool over = options_.node_rank == 0 && !Any(wire::Role::kScheduler);
  if (end.signal != 0 && (end.left_job || over)) {
    Say(what + " after it had left the job: it is not started again");
    scale_.OnEnd(node.index);
    ended_well_.insert(node.index);
    if (!exit_code_) {
      exit_code_ = end.exit_code();
      cause_ = what + " after it had left the job";
    }
    return;
  }
  if (end.signal == 0 && end.code != kStartAgainCode && end.code != kOutOfMemoryCode) {
    tail_ = node;
    return Fail({.exit_code = end.code, .cause = what, .consequence = ": the job ends", .secondary = true},
                now_ms);
  }
  if (TakeRestart(node, end, now_ms)) return;
  Say(what + " and is given up: " + UsedUp());
  scale_.OnEnd(node.index);
  if (!exit_code_) {
    exit_code_ = end.exit_code();
    cause_ = what + " and was given up";
  }
  given_up_.insert(node.index);
  Do(Kind::kGiveUp, node);
}

void Supervisor::SchedulerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  // It stays until every server that it knows has confirmed the end. One that is still here came
  // too late to be known, and nobody will tell it.
  if (phase_ == Phase::kLeaving && end.signal == 0) {
    scheduler_left_ = true;
    deadline_ms_ = std::min(deadline_ms_, now_ms + options_.late_server_grace_ms);
  }
  if (end.clean()) return;
  if (phase_ == Phase::kLeaving && end.signal == 0 && (options_.nodes == 1 || unused_)) return;
  if (end.signal != 0 && TakeRestart(node, end, now_ms)) {
    // It would wait for servers that have gone on the word of the one before.
    scheduler_began_again_ = true;
    for (const uint64_t uid : left_servers_) ended_.Add({uid});
    return;
  }
  const std::string words = end.signal == 0 ? last_words_ : "";
  Fail({.exit_code = end.exit_code(),
        .cause = ToString(node) + " " + ToString(end) + (words.empty() ? "" : ": " + words),
        .consequence = end.signal != 0 ? ": " + UsedUp() + ", and the job ends"
                       : words.empty() ? ": the job ends"
                                       : "; the job ends",
        .secondary = end.signal == 0},
       now_ms);
}

void Supervisor::Fail(const Failure& failure, int64_t now_ms) {
  if (stopping() || phase_ == Phase::kDone) return;  // what goes wrong now is only a consequence
  const std::string deaths = DeathsTogether();
  Say((failure.secondary && !failure_seen_.empty()
           ? "the job has failed: " + (deaths.empty() ? "" : deaths + ": ") + failure_seen_
           : failure.cause) +
      failure.consequence);
  if (!exit_code_) {
    const bool stopped = failure.secondary && failure_seen_.find(kStoppedWords) != std::string::npos;
    exit_code_ = stopped ? kStoppedCode : failure.exit_code;
    cause_ = failure.cause;
    secondary_ = failure.secondary;
  }
  if (options_.nodes > 1 && phase_ != Phase::kStarting) {
    aborted_ = "node " + std::to_string(options_.node_rank) + ": " + failure.cause;
    actions_.push_back({Kind::kAbort, {}, aborted_, 0});
  }
  StopStage(Phase::kStoppingWorkers, now_ms);
}

std::vector<SuperviseAction> Supervisor::OnStop(int64_t now_ms) {
  if (stopping() || phase_ == Phase::kDone) return Take();
  tail_.reset();
  exit_code_.reset();  // of a worker that was given up: this is why it ends
  Fail({.exit_code = kStoppedCode,
        .cause = std::string(kStoppedWords),
        .consequence = ": stopping everything"},
       now_ms);
  deadline_ms_ = now_ms + options_.interrupt_grace_ms;
  Settle(now_ms);
  return Take();
}

void Supervisor::StopStage(Phase phase, int64_t now_ms, Kind how) {
  phase_ = phase;
  softly_ = how == Kind::kInterrupt;
  deadline_ms_ = now_ms + (softly_ ? options_.interrupt_grace_ms : options_.stop_grace_ms);
  for (const NodeName& node : alive_) {
    const bool worker = node.role == wire::Role::kWorker;
    if (worker == (phase == Phase::kStoppingWorkers)) Do(how, node);
  }
}

void Supervisor::Settle(int64_t now_ms) {
  if (phase_ == Phase::kRunning && !Any(wire::Role::kWorker)) {
    phase_ = Phase::kLeaving;
    leaving_ms_ = now_ms;
    // Workers of other nodes may go on for as long as they like.
    constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    deadline_ms_ = options_.nodes > 1 ? kNever : now_ms + options_.leave_grace_ms;
    if (options_.nodes > 1 && !alive_.empty())
      Say("the workers of this node are done: waiting for the others");
    // A worker that left in good order is known to the scheduler: only later are ranks given up
    // that ended well without ever having joined or left the job.
    next_give_up_ms_ = now_ms + options_.give_up_every_ms;
    Do(Kind::kAsk, {});
  }
  if (phase_ == Phase::kStoppingWorkers && !Any(wire::Role::kWorker)) StopStage(Phase::kStoppingRest, now_ms);
  if ((phase_ == Phase::kLeaving || phase_ == Phase::kStoppingRest) && alive_.empty()) {
    phase_ = Phase::kDone;
    if (stubborn_ && exit_code() == 0) {
      exit_code_ = 1;
      cause_ = "some processes did not leave by themselves";
    }
    if (tail_) Do(Kind::kShowTail, *tail_);
  }
}

std::vector<SuperviseAction> Supervisor::OnInterrupt(int signal, int64_t now_ms) {
  if (phase_ == Phase::kDone) return Take();
  ++interrupts_;
  if (!stopping()) {
    tail_.reset();
    Fail({.exit_code = 128 + signal,
          .cause = "interrupted",
          .consequence = ": stopping everything (again: kill it)"},
         now_ms);
    if (signal == SIGINT && phase_ == Phase::kStoppingWorkers) {
      // As a terminal would have told them: Python raises KeyboardInterrupt.
      std::erase_if(actions_, [](const SuperviseAction& action) { return action.kind == Kind::kTerminate; });
      StopStage(Phase::kStoppingWorkers, now_ms, Kind::kInterrupt);
    }
  } else {
    if (interrupts_ <= 2) Say("killing what is left");
    phase_ = Phase::kStoppingRest;
    softly_ = false;
    deadline_ms_ = now_ms + options_.stop_grace_ms;
    for (const NodeName& node : alive_) Do(Kind::kKill, node);
  }
  Settle(now_ms);
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnTrouble(int exit_code, const std::string& why, int64_t now_ms) {
  Fail({.exit_code = exit_code, .cause = why, .consequence = ": stopping everything"}, now_ms);
  Settle(now_ms);
  return Take();
}

std::vector<SuperviseAction> Supervisor::OnSeen(const JobSeen& seen, int64_t now_ms) {
  if (!seen.answered || phase_ == Phase::kDone) return Take();
  if (phase_ != Phase::kStarting || !seen.over) heard_ms_ = now_ms;
  OnFailure(seen.failure);
  if (seen.copied && seen.asked_ms > servers_changed_ms_) died_servers_.clear();
  if (phase_ != Phase::kStarting) over_ = over_ || seen.over;
  if (seen.replicas > 0) replicas_ = seen.replicas;
  given_up_seen_ = seen.anybody_joined ? seen.given_up : std::set<uint32_t>{};
  // Once it can be reached again, it takes a moment until it has answered.
  constexpr int64_t kAnswerMs = 5'000;
  if (seen.lost_after_ms > 0) options_.lost_grace_ms = seen.lost_after_ms + kAnswerMs;
  if (phase_ == Phase::kRunning && !seen.over) FollowScale(seen);
  if (phase_ == Phase::kLeaving && seen.asked_ms >= leaving_ms_ && !seen.over) unused_ = !seen.anybody_joined;
  if (options_.node_rank > 0) {
    // One that is over is an earlier job's, which is about to free the port.
    if (phase_ == Phase::kStarting && !seen.over) StartAll();
    if (phase_ != Phase::kStarting && !unused_ && !seen.failure.empty())
      Fail({.cause = seen.failure, .secondary = true}, now_ms);
  }
  // The scheduler would call it a failure that nobody came; of a program that ended well it is not.
  if (phase_ == Phase::kLeaving && options_.nodes == 1 && exit_code() == 0 && unused_) {
    Say("no worker has used Cairn: the servers were not needed");
    StopStage(Phase::kStoppingRest, now_ms);
  }
  Settle(now_ms);
  return Take();
}

void Supervisor::LookForNode0(int64_t now_ms) {
  const auto seconds = [](int64_t ms) { return std::to_string(ms / 1000) + " s"; };
  if (phase_ == Phase::kStarting && now_ms >= heard_ms_ + options_.join_grace_ms) {
    Fail({.cause = "node 0's scheduler has not answered for " + seconds(options_.join_grace_ms),
          .consequence = ": is it started, and does it have the same --master-addr and --master-port?"},
         now_ms);
  }
  // Servers that have left say that the job is over, and then the scheduler may be gone.
  const bool needed = phase_ == Phase::kRunning || phase_ == Phase::kLeaving;
  if (needed && Any(wire::Role::kServer) && now_ms >= heard_ms_ + options_.lost_grace_ms) {
    Fail({.cause = "node 0's scheduler has not answered for " + seconds(options_.lost_grace_ms),
          .consequence = ": the job ends here"},
         now_ms);
  }
}

void Supervisor::StopLate(int64_t now_ms) {
  deadline_ms_ = now_ms + options_.stop_grace_ms;
  if (std::exchange(softly_, false)) return StopStage(Phase::kStoppingWorkers, now_ms);
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

std::vector<SuperviseAction> Supervisor::OnTick(int64_t now_ms) {
  if (!stopping()) TellEnded(now_ms);
  if ((phase_ == Phase::kRunning || phase_ == Phase::kLeaving) && now_ms >= next_give_up_ms_) {
    next_give_up_ms_ = now_ms + options_.give_up_every_ms;
    for (uint32_t rank : scale_.ranks()) {
      if (phase_ == Phase::kLeaving || given_up_.contains(rank))
        Do(Kind::kGiveUp, {wire::Role::kWorker, rank});
    }
  }
  if (phase_ == Phase::kRunning) {
    for (uint32_t rank : scale_.TakeLate(now_ms)) {
      const NodeName worker{wire::Role::kWorker, rank};
      Say(ToString(worker) + " did not go within " + std::to_string(options_.dismiss_grace_ms / 1000) +
          " s, and is killed");
      Do(Kind::kKill, worker);
    }
  }
  if (options_.node_rank > 0) LookForNode0(now_ms);
  if (phase_ == Phase::kLeaving && scheduler_left_ && now_ms >= deadline_ms_) {
    StopStage(Phase::kStoppingRest, now_ms);
  } else if ((phase_ == Phase::kLeaving || stopping()) && now_ms >= deadline_ms_) {
    StopLate(now_ms);
  }
  Settle(now_ms);
  return Take();
}

// The supervisor's decisions about servers: which deaths the job survives, how many it should have.

namespace {
constexpr const char* kNotEvenOneCopy =
    ": its part of the tables is lost and the job ends; with --replicas 2, and two servers or more, it "
    "would have gone on";

constexpr const char* kNoMemory =
    ": its part of the tables is lost and the job ends; use more servers, servers with more memory, or "
    "smaller "
    "tables";

// For the user, of a server that is started again.
std::string WhatBecomesOf(const ProcessEnd& server) {
  if (!server.has_copies) return "";
  return *server.has_copies
             ? "; others have copies of its partitions, and they are copied back to it"
             : "; not each of its partitions has another copy that is in sync and heard: if none "
               "comes back, the scheduler says so and the job ends";
}

// "server 1", "servers 0, 1 and 4"
std::string NamesOf(const std::set<uint32_t>& servers) {
  std::string text = servers.size() == 1 ? "server " : "servers ";
  size_t named = 0;
  for (uint32_t index : servers) {
    text += (named == 0 ? "" : named + 1 == servers.size() ? " and " : ", ") + std::to_string(index);
    ++named;
  }
  return text;
}
}  // namespace

void Supervisor::ServerEnded(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  servers_changed_ms_ = now_ms;
  // Servers leave when they are told to, or when the workers have left the job, which may be well
  // before their processes end.
  if (end.servers) {
    leaving_ = end.servers->leaving;
    if (end.servers->wanted > 0) servers_wanted_ = end.servers->wanted;
  }
  const bool leaving = leaving_.erase(node.index) > 0;
  if (end.clean()) {
    if (leaving) Say(ToString(node) + " has left: its partitions are on other servers");
    left_servers_.insert(end.uid);
    // Perhaps the word of the scheduler before made it go, and this one waits for it.
    if (scheduler_began_again_) ended_.Add({end.uid});
    return;
  }
  // A job whose workers never joined, or were all given up, is a failed one to its servers.
  if (phase_ == Phase::kLeaving && end.signal == 0 && (options_.nodes == 1 || unused_)) return;
  if (!LosesTables(node, end, leaving, now_ms)) return;
  const bool died = end.signal != 0 || end.code > 128;
  // Servers of a failed job say why as their last.
  if (!died && !last_words_.empty() && failure_seen_.empty()) failure_seen_ = last_words_;
  Fail({.exit_code = end.exit_code(),
        .cause = ToString(node) + " " + ToString(end),
        .consequence = !died                          ? ": the job ends"
                       : end.code == kOutOfMemoryCode ? kNoMemory
                       : options_.replicas < 2
                           ? kNotEvenOneCopy
                           : ": no other server is left, its part of the tables is lost and the "
                             "job ends",
        .secondary = !died},
       now_ms);
}

void Supervisor::TellEnded(int64_t now_ms) {
  for (const EndedProcess& process : ended_.TakeDue(now_ms))
    actions_.push_back({.kind = SuperviseAction::Kind::kEnded, .ended = process});
}

std::string Supervisor::DeathsTogether() const {
  if (died_servers_.size() < 2) return "";
  return NamesOf(died_servers_) + " died before their partitions were copied again";
}

// A job that is to have one server wants one copy only, but servers on their way out keep theirs until they
// go.
bool Supervisor::MayHaveCopies(const ProcessEnd& server, bool leaving) const {
  if (replicas_ >= 2) return true;
  const bool others_leave = !leaving_.empty();
  return server.has_copies.value_or(CountServers() > 0 && (leaving || others_leave));
}

bool Supervisor::LosesTables(const NodeName& node, const ProcessEnd& end, bool leaving, int64_t now_ms) {
  // 128 and more: a signal ended it, and it could still say so.
  const bool died = end.signal != 0 || end.code == kStartAgainCode || end.code > 128;
  if (!died || !MayHaveCopies(end, leaving)) return true;
  // Before another one is started: what others have copies of goes on there at once.
  ended_.Add({end.uid, end.signal == 0 && end.code == kOutOfMemoryCode});
  TellEnded(now_ms);
  const std::string what = ToString(node) + " " + ToString(end) + (leaving ? " while it was leaving" : "");
  const bool done = over_ || (options_.node_rank == 0 && !Any(wire::Role::kScheduler)) ||
                    (phase_ == Phase::kLeaving && options_.nodes == 1);
  if (done) {
    Say(what + " when the job was over: it is not started again");
    return false;
  }
  died_servers_.insert(node.index);
  // Those that are on their way out don't count: they would have to be replaced a moment later.
  if (const uint32_t staying = CountStaying(); options_.nodes == 1 && staying >= servers_wanted_) {
    Say(what + ": it is not started again, the job has the " + std::to_string(staying) +
        (staying == 1 ? " server that it should have" : " servers that it should have"));
    return false;
  }
  if (TakeRestart(node, end, now_ms, WhatBecomesOf(end))) return false;
  // Whether the job can go on without it is the scheduler's to say.
  if (CountServers() == 0 && options_.nodes == 1) return true;
  Say(what + " and is given up: " + UsedUp() + "; the job goes on with " + std::to_string(CountServers()) +
      (CountServers() == 1 ? " server" : " servers") + (options_.nodes > 1 ? " here" : "") +
      ", if they have copies of its partitions");
  given_up_servers_.insert(node.index);
  return false;
}

// "server 1 is leaving", "servers 1 and 2 are leaving"
std::string Supervisor::NameLeaving() const {
  return NamesOf(leaving_) + (leaving_.size() == 1 ? " is leaving" : " are leaving");
}

uint32_t Supervisor::CountServers() const {
  return static_cast<uint32_t>(std::count_if(
      alive_.begin(), alive_.end(), [](const NodeName& node) { return node.role == wire::Role::kServer; }));
}

uint32_t Supervisor::CountStaying() const {
  return CountServers() -
         static_cast<uint32_t>(std::count_if(leaving_.begin(), leaving_.end(), [&](uint32_t index) {
           return alive_.contains({wire::Role::kServer, index});
         }));
}

// `cairn scale` has asked for more servers, or one has left that is to be replaced. On several nodes
// the further ones are node 0's.
void Supervisor::FollowScale(const JobSeen& seen) {
  if (seen.servers.wanted == 0 || seen.asked_ms <= servers_changed_ms_) return;
  const uint32_t began_with = options_.nodes * options_.servers;
  const bool news = std::exchange(servers_wanted_, seen.servers.wanted) != seen.servers.wanted;
  leaving_ = seen.servers.leaving;
  uint32_t wanted = servers_wanted_, first = 0, staying = CountStaying();
  if (options_.nodes > 1) {
    if (options_.node_rank != 0 || wanted <= began_with) return;
    wanted = options_.servers + wanted - began_with;
    first = began_with;
    staying = CountServers();  // one that has left a machine is not replaced there
  }
  staying += static_cast<uint32_t>(given_up_servers_.size());
  if (news) {
    Say("the job is to have " + std::to_string(servers_wanted_) +
        (servers_wanted_ == 1 ? " server" : " servers") +
        (staying < wanted   ? ": starting " + std::to_string(wanted - staying) + " more"
         : staying > wanted ? ": the others leave when their partitions have moved"
                            : ""));
  }
  for (uint32_t index = first; staying < wanted; ++index) {
    const NodeName node{wire::Role::kServer, index};
    if (alive_.contains(node) || given_up_servers_.contains(index)) continue;
    if (!news)
      Say("starting " + ToString(node) + ": the job is to have " + std::to_string(servers_wanted_) +
          (servers_wanted_ == 1 ? " server, and " : " servers, and ") +
          (leaving_.empty() ? "one has left" : NameLeaving()));
    Start(node);
    ++staying;
  }
}

}  // namespace cairn::cluster

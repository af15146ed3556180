#include "cluster/supervise/server_supervisor.h"

#include <vector>

#include "base/memory_limits.h"

namespace cairn::cluster {
namespace {

constexpr const char* kNotEvenOneCopy =
    ": its part of the tables is lost and the job ends; with --replicas 2, and two servers or more, it "
    "would have gone on";

constexpr const char* kNoMemory =
    ": its part of the tables is lost and the job ends; use more servers, servers with more memory, or "
    "smaller tables";

constexpr const char* kNoServerLeft =
    ": no other server is left, its part of the tables is lost and the job ends";

// For the user, of a server that is started again.
std::string WhatBecomesOf(const ProcessEnd& server) {
  if (!server.has_copies) return "";
  return *server.has_copies
             ? "; others have copies of its partitions, and they are copied back to it"
             : "; not each of its partitions has another copy that is in sync and heard: if none "
               "comes back, the scheduler says so and the job ends";
}

std::string ServerNames(const std::set<uint32_t>& servers) {
  return NamesOf(wire::Role::kServer, {servers.begin(), servers.end()});
}

}  // namespace

ServerSupervisor::ServerSupervisor(const SuperviseOptions& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      scale_({options.nodes, options.node_rank, options.servers}),
      ended_(options.give_up_every_ms),
      replicas_(options.replicas) {}

void ServerSupervisor::StartAll() {
  for (uint32_t i = 0; i < options_.servers; ++i)
    parts_.running.Start({wire::Role::kServer, options_.node_rank * options_.servers + i});
}

std::optional<Failure> ServerSupervisor::OnEnd(const NodeName& node, const ProcessEnd& end, int64_t now_ms) {
  // Servers leave when they are told to, or when the workers have left the job, which may be well
  // before their processes end.
  const bool leaving = scale_.OnEnd(node.index, end.servers, now_ms);
  if (end.clean()) {
    if (leaving) parts_.actions.Say(ToString(node) + " has left: its partitions are on other servers");
    ended_.AddLeft(end.uid);
    return std::nullopt;
  }
  // A job whose workers never joined, or were all given up, is a failed one to its servers.
  if (parts_.stages.leaving() && end.signal == 0 && (options_.one_node() || parts_.stages.unused()))
    return std::nullopt;
  // 128 and more: a signal ended it, and it could still say so.
  const bool died = end.signal != 0 || end.code > 128;
  const bool ends_alone = died || end.code == kStartAgainCode;
  if (ends_alone && MayHaveCopies(end, leaving) && Died(node, end, leaving, now_ms) == Loss::kNone)
    return std::nullopt;
  if (died) return LostTables(node, end);
  parts_.verdict.TakeLastWordsForFailure();  // servers of a failed job say why as their last
  return Failure{.exit_code = end.exit_code(),
                 .cause = ToString(node) + " " + ToString(end),
                 .consequence = ": the job ends",
                 .secondary = true};
}

Failure ServerSupervisor::LostTables(const NodeName& node, const ProcessEnd& end) const {
  return {.exit_code = end.exit_code(),
          .cause = ToString(node) + " " + ToString(end),
          .consequence = end.code == kOutOfMemoryCode ? kNoMemory
                         : options_.replicas < 2      ? kNotEvenOneCopy
                                                      : kNoServerLeft};
}

// A job that is to have one server wants one copy only, but servers on their way out keep theirs until they
// go.
bool ServerSupervisor::MayHaveCopies(const ProcessEnd& server, bool leaving) const {
  if (replicas_ >= 2) return true;
  const bool others_leave = !scale_.leaving().empty();
  return server.has_copies.value_or(Count() > 0 && (leaving || others_leave));
}

bool ServerSupervisor::JobIsOver() const {
  return job_over_ || (options_.node_rank == 0 && !parts_.running.Any(wire::Role::kScheduler)) ||
         (parts_.stages.leaving() && options_.one_node());
}

// Its tables are not lost where others have copies, or where nobody needs them any longer.
ServerSupervisor::Loss ServerSupervisor::Died(const NodeName& node, const ProcessEnd& end, bool leaving,
                                              int64_t now_ms) {
  // Before another one is started: what others have copies of goes on there at once.
  ended_.Add({end.uid, end.signal == 0 && end.code == kOutOfMemoryCode});
  TellEnded(now_ms);
  const std::string what = ToString(node) + " " + ToString(end) + (leaving ? " while it was leaving" : "");
  if (JobIsOver()) {
    parts_.actions.Say(what + " when the job was over: it is not started again");
    return Loss::kNone;
  }
  died_.insert(node.index);
  // Those that are on their way out don't count: they would have to be replaced a moment later.
  const uint32_t staying = scale_.CountStaying(parts_.running.Indices(wire::Role::kServer));
  if (options_.one_node() && staying >= scale_.wanted()) {
    parts_.actions.Say(what + ": it is not started again, the job has the " + std::to_string(staying) +
                       (staying == 1 ? " server that it should have" : " servers that it should have"));
    return Loss::kNone;
  }
  if (parts_.restarts.Take(node, end, now_ms, WhatBecomesOf(end))) return Loss::kNone;
  // Whether the job can go on without it is the scheduler's to say.
  if (Count() == 0 && options_.one_node()) return Loss::kTables;
  parts_.actions.Say(what + " and is given up: " + parts_.restarts.UsedUp() + "; the job goes on with " +
                     std::to_string(Count()) + (Count() == 1 ? " server" : " servers") +
                     (options_.one_node() ? "" : " here") + ", if they have copies of its partitions");
  scale_.GiveUp(node.index);
  return Loss::kNone;
}

void ServerSupervisor::TellEnded(int64_t now_ms) {
  for (const EndedProcess& process : ended_.TakeDue(now_ms)) parts_.actions.TellEnded(process);
}

std::string ServerSupervisor::DeathsTogether() const {
  if (died_.size() < 2) return "";
  return ServerNames(died_) + " died before their partitions were copied again";
}

void ServerSupervisor::OnSeen(const JobSeen& seen) {
  if (seen.copied && scale_.IsNew(seen.asked_ms)) died_.clear();
  if (!parts_.stages.starting() && seen.over) job_over_ = true;
  if (seen.replicas > 0) replicas_ = seen.replicas;
}

std::string ServerSupervisor::ToHave(const std::string& then) const {
  return "the job is to have " + std::to_string(scale_.wanted()) +
         (scale_.wanted() == 1 ? " server" : " servers") + then;
}

// `cairn scale` has asked for more servers, or one has left that is to be replaced.
void ServerSupervisor::FollowScale(const JobSeen& seen) {
  const ServerScale::Change change =
      scale_.Follow(seen.servers, seen.asked_ms, parts_.running.Indices(wire::Role::kServer));
  if (change.news) {
    parts_.actions.Say(ToHave(!change.start.empty()
                                  ? ": starting " + std::to_string(change.start.size()) + " more"
                              : change.too_many ? ": the others leave when their partitions have moved"
                                                : ""));
  }
  for (uint32_t index : change.start) {
    const NodeName node{wire::Role::kServer, index};
    const std::set<uint32_t>& leaving = scale_.leaving();
    const std::string why = leaving.empty()
                                ? "one has left"
                                : ServerNames(leaving) + (leaving.size() == 1 ? " is" : " are") + " leaving";
    if (!change.news) parts_.actions.Say("starting " + ToString(node) + ": " + ToHave(", and " + why));
    parts_.running.Start(node);
  }
}

}  // namespace cairn::cluster

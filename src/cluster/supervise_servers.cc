// The supervisor's decisions about servers: which deaths the job survives, how many it should have.
#include <algorithm>
#include <utility>

#include "base/memory_limits.h"
#include "cluster/supervise.h"

namespace cairn::cluster {

namespace {
constexpr const char* kNotEvenOneCopy =
    ": its part of the tables is lost and the job ends; with --replicas 2, and two servers or more, it "
    "would have gone on";

constexpr const char* kNoMemory =
    ": its part of the tables is lost and the job ends; use more servers, servers with more memory, or smaller "
    "tables";

// For the user, of a server that is started again.
std::string WhatBecomesOf(const ProcessEnd& server) {
  if (!server.has_copies) return "";
  return *server.has_copies ? "; others have copies of its partitions, and they are copied back to it"
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
        .consequence = !died           ? ": the job ends"
                       : end.code == kOutOfMemoryCode ? kNoMemory
                       : options_.replicas < 2 ? kNotEvenOneCopy
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

// A job that is to have one server wants one copy only, but servers on their way out keep theirs until they go.
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
  Say(what + " and is given up: " + UsedUp() + "; the job goes on with " +
      std::to_string(CountServers()) + (CountServers() == 1 ? " server" : " servers") +
      (options_.nodes > 1 ? " here" : "") + ", if they have copies of its partitions");
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
  return CountServers() - static_cast<uint32_t>(std::count_if(leaving_.begin(), leaving_.end(), [&](uint32_t index) {
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

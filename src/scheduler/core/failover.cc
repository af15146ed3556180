#include "scheduler/core/failover.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/rules/job_end.h"
#include "scheduler/rules/memory_room.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {

constexpr const char* kMoreMemory = "more servers, servers with more memory, or smaller tables";

std::string Named(const wire::ServerInfo& server) {
  return "server " + std::to_string(server.index) + " (" + ToString(server.endpoint) + ")";
}

std::string FailureOf(const wire::ClusterState& state, const wire::ServerInfo& server, const std::string& how,
                      const std::vector<uint32_t>& slots, bool out_of_memory) {
  const std::string lost = Named(server) + " is lost: " + how + "; ";
  const std::string which = Listed("partition", slots) + " (" + std::to_string(slots.size()) + " of " +
                            std::to_string(state.slots.size()) + ")";
  if (out_of_memory)
    return lost + "no other owner of " + which + " is left: start the job again with " + kMoreMemory;
  if (state.replicas > 1)
    return lost + "no other owner of " + which +
           " was in sync: all others had died or were still being copied to; start the job anew, and with "
           "--replicas " +
           std::to_string(state.replicas + 1) + " it survives " + std::to_string(state.replicas) +
           " deaths at a time (with as many servers or more)";
  return lost + which +
         " had no other copy: start the job anew; with --replicas 2, and two servers or "
         "more, it would have survived this";
}

}  // namespace

std::vector<uint32_t> Failover::SlotsThatNeed(const wire::ServerInfo& server, int64_t now_us) const {
  std::vector<uint32_t> needing;
  if (!journal_.durable().running()) return needing;
  const wire::ClusterState& state = journal_.state();
  const std::vector<uint32_t> suspects = presence_.Suspects(state, now_us);
  auto heard = [&](uint32_t index) { return !std::binary_search(suspects.begin(), suspects.end(), index); };
  for (uint32_t slot = 0; slot < state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = state.slots[slot];
    const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server.index));
    if (owner.server != server.index && (backup == nullptr || !backup->in_sync)) continue;
    bool other = owner.server != server.index && heard(owner.server);
    for (const wire::Backup& b : owner.backups)
      other |= b.server != server.index && b.in_sync && heard(b.server);
    if (!other) needing.push_back(slot);
  }
  return needing;
}

void Failover::DetectLostServers(int64_t now_us) {
  const Hearing& hearing = presence_.hearing();
  const std::vector<wire::ServerInfo> servers = journal_.state().servers;
  for (const wire::ServerInfo& server : servers) {
    if (!presence_.silent(server.incarnation) || journal_.durable().over() || !journal_.ok()) continue;
    // What would be lost with it may be lost only if it is really gone.
    if (!hearing.Lost(server.incarnation, now_us)) {
      const std::vector<uint32_t> needing = SlotsThatNeed(server, now_us);
      if (!needing.empty()) {
        if (presence_.NoteNeeded(server.incarnation))
          log_(Named(server) + " is not heard, but nobody else who is heard has " +
               Listed("partition", needing) + " in sync: it gets up to " + Seconds(lost_after_us_) +
               " to come back");
        continue;
      }
    }
    Lose(server,
         hearing.KnownDead(server.incarnation)
             ? kProcessEnded
             : "not heard for " + Seconds(hearing.SilenceUs(server.incarnation, now_us)),
         now_us);
  }
}

void Failover::OnReplaced(const wire::ServerInfo& server, int64_t now_us) {
  presence_.MarkDead(server.incarnation);
  Lose(server, "another process has registered at its address, so it was restarted", now_us);
}

void Failover::Lose(const wire::ServerInfo& lost, std::string how, int64_t now_us) {
  if (journal_.durable().over()) return;
  const wire::ClusterState& state = journal_.state();
  const wire::NodeStats& stats = loads_.Of(lost.incarnation).stats;
  const std::string memory = presence_.out_of_memory(lost.incarnation)
                                 ? ": it ran out of memory"
                                 : ProbablyOutOfMemory(stats.memory, stats.memory_bytes);
  how += memory;
  DurableState next = journal_.Next();
  if (const std::vector<uint32_t> only = SlotsOnlyAt(state, lost.index); !only.empty()) {
    FailJob(next, FailureOf(state, lost, how, only, !memory.empty()));
    (void)journal_.Commit(std::move(next));
    return;
  }
  RemoveServer(next, lost.incarnation, NodeFate::kRetired, presence_.Suspects(state, now_us));
  CAIRN_CHECK(next.state.failovers >= state.failovers);
  CAIRN_CHECK(next.state.FindServer(lost.index) == nullptr);
  const uint64_t promoted = next.state.failovers - state.failovers;
  const size_t single = next.state.replicas > 1 ? NewlySingle(state, next.state) : 0;
  if (!journal_.Commit(std::move(next))) return;
  log_(Named(lost) + " is lost: " + how + "; " +
       (promoted > 0 ? Count(promoted, "partition") + " of it went on at other owners"
                     : std::string("it was the primary of nothing")));
  single_owners_.Alarm(journal_.state(), single, "server " + std::to_string(lost.index) + " is lost");
  connections_.Retire(lost.incarnation,
                      "server " + std::to_string(lost.index) + " is lost to the job (" + how + ")");
}

}  // namespace cairn::scheduler

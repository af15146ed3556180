// Servers that are lost: when one may be declared dead, and the record that goes on without it
// (rules 7 and 44).
#include <algorithm>
#include <utility>

#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {

constexpr const char* kMoreMemory = "more servers, servers with more memory, or smaller tables";

std::string Named(const wire::ServerInfo& server) {
  return "server " + std::to_string(server.index) + " (" + ToString(server.endpoint) + ")";
}

size_t NewlySingle(const wire::ClusterState& before, const wire::ClusterState& after) {
  size_t count = 0;
  for (size_t slot = 0; slot < after.slots.size(); ++slot)
    if (InSyncOwners(after.slots[slot]) == 1 && InSyncOwners(before.slots[slot]) > 1) ++count;
  return after.replicas > 1 ? count : 0;
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

bool SchedulerCore::HeardLately(uint32_t server, int64_t now_us) const {
  const wire::ServerInfo* info = state().FindServer(server);
  return info != nullptr && hearing_.Lately(info->incarnation, now_us);
}

std::vector<uint32_t> SchedulerCore::Suspects(int64_t now_us) const {
  std::vector<uint32_t> suspects;
  for (const wire::ServerInfo& server : state().servers)
    if (!HeardLately(server.index, now_us)) suspects.push_back(server.index);
  return suspects;
}

std::vector<uint32_t> SchedulerCore::SlotsThatNeed(const wire::ServerInfo& server, int64_t now_us) const {
  std::vector<uint32_t> needing;
  if (!durable_.running()) return needing;
  const std::vector<uint32_t> suspects = Suspects(now_us);
  auto heard = [&](uint32_t index) { return !std::binary_search(suspects.begin(), suspects.end(), index); };
  for (uint32_t slot = 0; slot < state().slots.size(); ++slot) {
    const wire::SlotOwner& owner = state().slots[slot];
    const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(server.index));
    if (owner.server != server.index && (backup == nullptr || !backup->in_sync)) continue;
    bool other = owner.server != server.index && heard(owner.server);
    for (const wire::Backup& b : owner.backups)
      other |= b.server != server.index && b.in_sync && heard(b.server);
    if (!other) needing.push_back(slot);
  }
  return needing;
}

void SchedulerCore::DetectLostServers(int64_t now_us) {
  const std::vector<wire::ServerInfo> servers = state().servers;
  for (const wire::ServerInfo& server : servers) {
    Live* live = FindLive(server.incarnation);
    if (live == nullptr || !live->silent || durable_.over() || !fatal_.ok()) continue;
    // What would be lost with it may be lost only if it is really gone.
    if (!hearing_.Lost(server.incarnation, now_us)) {
      const std::vector<uint32_t> needing = SlotsThatNeed(server, now_us);
      if (!needing.empty()) {
        if (!std::exchange(live->told_needed, true))
          log_(Named(server) + " is not heard, but nobody else who is heard has " +
               Listed("partition", needing) + " in sync: it gets up to " + Seconds(options_.lost_after_us) +
               " to come back");
        continue;
      }
    }
    LoseServer(server,
               hearing_.KnownDead(server.incarnation)
                   ? kProcessEnded
                   : "not heard for " + Seconds(hearing_.SilenceUs(server.incarnation, now_us)),
               now_us);
  }
}

void SchedulerCore::LoseServer(const wire::ServerInfo& lost, std::string how, int64_t now_us) {
  if (durable_.over()) return;
  const Live* live = FindLive(lost.incarnation);
  const std::string memory = live == nullptr        ? ""
                             : live->out_of_memory ? ": it ran out of memory"
                                                   : ProbablyOutOfMemory(live->stats.memory, live->stats.memory_bytes);
  how += memory;
  DurableState next = Next();
  if (const std::vector<uint32_t> only = SlotsOnlyAt(state(), lost.index); !only.empty()) {
    FailJob(next, FailureOf(state(), lost, how, only, !memory.empty()));
    (void)Commit(std::move(next));
    return;
  }
  RemoveServer(next, lost.incarnation, NodeFate::kRetired, Suspects(now_us));
  const uint64_t promoted = next.state.failovers - state().failovers;
  const size_t single = NewlySingle(state(), next.state);
  if (!Commit(std::move(next))) return;
  log_(Named(lost) + " is lost: " + how + "; " +
       (promoted > 0 ? Count(promoted, "partition") + " of it went on at other owners"
                     : std::string("it was the primary of nothing")));
  AlarmIfSingle(single, "server " + std::to_string(lost.index) + " is lost");
  Retire(lost.incarnation, "server " + std::to_string(lost.index) + " is lost to the job (" + how + ")");
}

// One line for each event, however many slots it concerns.
void SchedulerCore::AlarmIfSingle(size_t slots, const std::string& why) {
  if (slots == 0) return;
  single_ = true;
  log_("alarm: " + Count(slots, "partition") + (slots == 1 ? " has" : " have") +
       " only one owner in sync now, since " + why +
       (StayingServers(state()) > 1 ? "; another copy is made"
                                    : "; no server is there to take another copy: start one"));
}

}  // namespace cairn::scheduler

#include "scheduler/rules/server_count.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {

// With replicas chosen automatically there are two owners as soon as two servers are wanted.
void ExpectServers(DurableState& d, uint32_t servers, uint32_t replicas) {
  CAIRN_CHECK(servers > 0);
  d.state.expected_servers = servers;
  d.state.replicas = replicas == 0 ? std::min(2u, servers) : replicas;
}

Status CheckServerCount(const DurableState& d, uint32_t servers) {
  if (d.forming()) return {Code::kUnavailable, "the job is still forming: scale it when it runs"};
  if (d.over()) return {Code::kJobFailed, "the job is over: there is nothing to scale"};
  const uint32_t most = std::min<uint32_t>(d.slot_count, wire::kNoServer);
  if (servers == 0 || servers > most)
    return {Code::kInvalidArgument, "this job can have 1 to " + std::to_string(most) +
                                        " servers (one for each partition), not " + std::to_string(servers)};
  if (servers < d.state.min_in_sync)
    return {Code::kInvalidArgument, Count(servers, "server") + " can't have " +
                                        std::to_string(d.state.min_in_sync) +
                                        " owners in sync, as --min-in-sync asks for: every push would wait"};
  return Status::Ok();
}

uint32_t LeastToStay(const wire::ClusterState& state) { return std::max(1u, state.min_in_sync); }

std::vector<uint32_t> KeepServers(DurableState& d, uint32_t wanted, const ServerWishes& wishes) {
  std::vector<uint32_t> kept;
  const uint32_t staying = StayingServers(d.state);
  for (const bool lately : {true, false}) {
    for (wire::ServerInfo& server : d.state.servers) {
      if (staying + kept.size() >= wanted) break;
      const bool heard = !wishes.heard_lately || wishes.heard_lately(server);
      if (!server.leaving || heard != lately || wishes.wants_to_leave(server)) continue;
      server.leaving = false;
      kept.push_back(server.index);
    }
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

bool OneCouldStay(const wire::ClusterState& state, const ServerWishes& wishes) {
  if (StayingServers(state) >= LeastToStay(state)) return false;
  bool wants = false, could = false;
  for (const wire::ServerInfo& server : state.servers) {
    const bool wishes_to_go = wishes.wants_to_leave(server);
    wants |= wishes_to_go;
    could |= server.leaving && !wishes_to_go;
  }
  return wants && could;
}

std::vector<uint32_t> AskServersToGo(DurableState& d, uint32_t wanted) {
  uint32_t staying = StayingServers(d.state);
  std::vector<uint32_t> going;
  for (auto it = d.state.servers.rbegin(); it != d.state.servers.rend(); ++it) {
    if (staying <= wanted || it->leaving) continue;
    it->leaving = true;
    --staying;
    going.push_back(it->index);
  }
  std::reverse(going.begin(), going.end());
  return going;
}

}  // namespace cairn::scheduler

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

std::vector<uint32_t> KeepServers(DurableState& d, uint32_t wanted,
                                  const std::function<bool(Incarnation)>& wants_to_leave) {
  std::vector<uint32_t> kept;
  const uint32_t staying = StayingServers(d.state);
  for (wire::ServerInfo& server : d.state.servers) {
    if (staying + kept.size() >= wanted || !server.leaving || wants_to_leave(server.incarnation)) continue;
    server.leaving = false;
    kept.push_back(server.index);
  }
  return kept;
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

// How many servers the job should have: what `cairn scale` asks for, and servers that come or go of
// their own accord.
#include <algorithm>
#include <utility>

#include "scheduler/core/core.h"

namespace cairn::scheduler {

// With replicas chosen automatically there are two owners as soon as two servers are wanted.
void SchedulerCore::ExpectServers(DurableState& next, uint32_t servers) const {
  next.state.expected_servers = servers;
  next.state.replicas = options_.replicas == 0 ? std::min(2u, servers) : options_.replicas;
}

// Only servers that are connected count: one that was killed may be replaced before it is known to be
// dead, and that must not raise the number wanted.
void SchedulerCore::ExpectJoined(DurableState& next) const {
  if (!next.running()) return;
  uint32_t there = 1;
  for (const wire::ServerInfo& server : state().servers) {
    const Live* live = FindLive(server.incarnation);
    if (!server.leaving && live != nullptr && live->conn != ConnId(0)) ++there;
  }
  if (there > next.state.expected_servers) ExpectServers(next, there);
}

// Until so many stay. Those that want to go themselves are not kept.
std::vector<uint32_t> SchedulerCore::WantAgain(DurableState& next, uint32_t wanted) const {
  std::vector<uint32_t> kept;
  const uint32_t staying = StayingServers(next.state);
  for (wire::ServerInfo& server : next.state.servers) {
    const Live* live = FindLive(server.incarnation);
    if (staying + kept.size() >= wanted || !server.leaving || (live != nullptr && live->wants_to_leave)) continue;
    server.leaving = false;
    kept.push_back(server.index);
  }
  return kept;
}

void SchedulerCore::OnScale(ConnId conn, const wire::Scale& scale, int64_t now_us) {
  auto refuse = [&](Code code, std::string text) { Refuse(conn, code, std::move(text), scale.request); };
  if (durable_.forming())
    return refuse(Code::kUnavailable, "the job is still forming: scale it when it runs");
  if (durable_.over()) return refuse(Code::kJobFailed, "the job is over: there is nothing to scale");
  const uint32_t most = std::min<uint32_t>(durable_.slot_count, wire::kNoServer);
  if (scale.servers == 0 || scale.servers > most)
    return refuse(Code::kInvalidArgument, "this job can have 1 to " + std::to_string(most) +
                                              " servers (one for each partition), not " +
                                              std::to_string(scale.servers));
  if (scale.servers < state().min_in_sync)
    return refuse(Code::kInvalidArgument,
                  Count(scale.servers, "server") + " can't have " + std::to_string(state().min_in_sync) +
                      " owners in sync, as --min-in-sync asks for: every push would wait");
  DurableState next = Next();
  ExpectServers(next, scale.servers);
  uint32_t staying = StayingServers(next.state);
  std::vector<uint32_t> going;
  for (auto it = next.state.servers.rbegin(); it != next.state.servers.rend(); ++it) {
    if (staying <= scale.servers || it->leaving) continue;
    it->leaving = true;
    --staying;
    going.push_back(it->index);
  }
  std::reverse(going.begin(), going.end());
  staying += static_cast<uint32_t>(WantAgain(next, scale.servers).size());
  const bool same =
      next.state.servers == state().servers && next.state.expected_servers == state().expected_servers;
  if (!same) {
    if (!Commit(std::move(next))) return;
    std::string line = "scale: the job is to have " + Count(scale.servers, "server");
    if (!going.empty()) line += "; " + Listed("server", going) + (going.size() == 1 ? " goes" : " go");
    if (staying < scale.servers) line += "; " + Count(scale.servers - staying, "server") + " more to come";
    log_(line);
  }
  Settle(now_us);
  Send(conn, wire::StatusReply{scale.request, StatusJson(now_us)});
}

}  // namespace cairn::scheduler

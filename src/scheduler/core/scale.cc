#include "scheduler/core/scale.h"

#include <string>
#include <utility>
#include <vector>

#include "scheduler/rules/owners.h"
#include "scheduler/rules/server_count.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {

// Only servers that are connected count: one that was killed may be replaced before it is known to be
// dead, and that must not raise the number wanted.
void Scale::ExpectJoined(DurableState& next) const {
  if (!next.running()) return;
  uint32_t there = 1;
  for (const wire::ServerInfo& server : journal_.state().servers)
    if (!server.leaving && connections_.Of(server.incarnation) != ConnId(0)) ++there;
  if (there > next.state.expected_servers) ExpectServers(next, there, replicas_);
}

bool Scale::OnScale(ConnId conn, const wire::Scale& scale) {
  const wire::ClusterState& state = journal_.state();
  if (Status status = CheckServerCount(journal_.durable(), scale.servers); !status.ok()) {
    connections_.Refuse(conn, status.code(), status.message(), scale.request);
    return false;
  }
  DurableState next = journal_.Next();
  ExpectServers(next, scale.servers, replicas_);
  const std::vector<uint32_t> going = AskServersToGo(next, scale.servers);
  KeepServers(next, scale.servers, {.wants_to_leave = [&](const wire::ServerInfo& server) {
                return news_.WantsToLeave(server.incarnation);
              }});
  const uint32_t staying = StayingServers(next.state);
  if (next.state.servers == state.servers && next.state.expected_servers == state.expected_servers)
    return true;
  if (!journal_.Commit(std::move(next))) return false;
  std::string line = "scale: the job is to have " + Count(scale.servers, "server");
  if (!going.empty()) line += "; " + Listed("server", going) + (going.size() == 1 ? " goes" : " go");
  if (staying < scale.servers) line += "; " + Count(scale.servers - staying, "server") + " more to come";
  log_(line);
  return true;
}

}  // namespace cairn::scheduler

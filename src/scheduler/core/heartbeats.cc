#include "scheduler/core/heartbeats.h"

#include <string>

namespace cairn::scheduler {

bool Heartbeats::OnHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, int64_t now_us) {
  if (!parts_.registration.Recognise(conn, heartbeat, now_us)) return false;
  const Incarnation id = heartbeat.incarnation;
  const NodeRecord node = *parts_.journal.durable().FindNode(id);
  const bool server = node.role == wire::Role::kServer;
  parts_.barriers.Take(id, heartbeat.barrier_count);
  bool follows =
      parts_.teller.Take(id, heartbeat.version) && parts_.tables.any();  // they wait for confirmations
  if (heartbeat.end_confirmed) parts_.farewell.TakeConfirmation(id);
  follows |= parts_.views.Take(id, heartbeat);
  parts_.loads.Take(id, heartbeat, now_us);
  if (server) follows |= TakeServersPart(node.rank, heartbeat, now_us);
  parts_.teller.WarnIfAhead(id, (server ? "server " : "worker ") + std::to_string(node.rank),
                            heartbeat.version);
  parts_.teller.SendIfBehind(id, now_us);
  parts_.connections.Send(conn, ReplyNow());
  return follows;
}

bool Heartbeats::TakeServersPart(uint32_t server, const wire::Heartbeat& heartbeat, int64_t now_us) {
  if (parts_.moves.EndOverRuin(server, heartbeat.news)) return false;
  const bool follows = parts_.news.Take(heartbeat.incarnation, heartbeat, now_us);
  parts_.loads.TakeRows(heartbeat.incarnation, heartbeat, now_us);
  if (parts_.journal.durable().running()) parts_.placer.TakeLoads(server, heartbeat.loads, now_us);
  return follows;
}

wire::HeartbeatReply Heartbeats::ReplyNow() {
  const wire::ClusterState& state = parts_.journal.state();
  const std::string& awaiting = parts_.awaiting.Text();
  return {state.term,
          state.version,
          parts_.barriers.Open(),
          awaiting,
          parts_.awaiting.blocked_slots(),
          static_cast<uint32_t>(heartbeat_us_ / 1000)};
}

void Heartbeats::TellBarrier() {
  if (!parts_.barriers.TakeOpened()) return;
  const wire::FramePtr frame = parts_.connections.Encode(ReplyNow());
  for (const wire::WorkerInfo& worker : parts_.journal.state().workers)
    if (const ConnId conn = parts_.connections.Of(worker.incarnation); conn != ConnId(0))
      parts_.connections.Send(conn, frame);
}

}  // namespace cairn::scheduler

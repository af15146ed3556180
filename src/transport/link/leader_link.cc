#include "transport/link/leader_link.h"

#include <utility>

namespace cairn {

LeaderLink::LeaderLink(Options options, Network& network, BufferPool& pool)
    : network_(network),
      pool_(pool),
      dialer_(network, std::move(options.places),
              {.every_us = options.heartbeat_us, .soonest_us = options.soonest_us, .seed = options.seed}),
      heartbeat_us_(options.heartbeat_us) {}

void LeaderLink::Close() {
  dialer_.Stop();
  if (connected()) network_.Close(conn_);
  conn_ = ConnId{};
}

void LeaderLink::Send(const wire::ControlMessage& message) {
  if (connected()) network_.Send(conn_, wire::EncodeControl(message, pool_));
}

bool LeaderLink::OnConnected(ConnId conn, int64_t now_us) {
  if (!dialer_.OnConnected(conn)) return false;
  if (connected()) network_.Close(conn_);  // a silent one
  conn_ = conn;
  heard_us_ = now_us;
  ++connection_number_;
  return true;
}

bool LeaderLink::OnDisconnect(ConnId conn, int64_t now_us) {
  return !dialer_.OnDisconnect(conn, now_us) && Is(conn);
}

void LeaderLink::OnTick(int64_t now_us) {
  const bool silent = connected() && now_us - heard_us_ >= kSilentHeartbeats * heartbeat_us_;
  if (!connected() || silent) dialer_.OnTick(now_us);
}

void LeaderLink::OnHeard(int64_t now_us) {
  heard_us_ = now_us;
  dialer_.Stop();  // it was only slow
}

void LeaderLink::DialAgain(int64_t now_us) {
  conn_ = ConnId{};
  dialer_.DialSoon(now_us);
}

// Whoever answers next is the leader, or says that it is not.
void LeaderLink::Drop(int64_t now_us) {
  if (connected()) network_.Close(conn_);
  DialAgain(now_us);
}

void LeaderLink::LeaveForAnother(int64_t now_us) {
  if (several()) Drop(now_us);
}

void LeaderLink::SetHeartbeat(int64_t heartbeat_us) {
  heartbeat_us_ = heartbeat_us;
  dialer_.set_every_us(heartbeat_us);
}

}  // namespace cairn

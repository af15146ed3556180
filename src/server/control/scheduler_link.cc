#include "server/control/scheduler_link.h"

#include <vector>

#include "base/check.h"

namespace cairn::server {
namespace {
// A connection on which so many heartbeats in a row get no answer is not relied on alone.
constexpr int64_t kSilentHeartbeats = 2;  // well before the scheduler takes us for dead

std::vector<wire::Endpoint> Places(const ServerControlOptions& options) {
  std::vector<wire::Endpoint> places{options.scheduler};
  places.insert(places.end(), options.standbys.begin(), options.standbys.end());
  return places;
}
}  // namespace

SchedulerLink::SchedulerLink(const ServerControlOptions& options, Network& network, BufferPool& pool,
                             int64_t now_us)
    : options_(options),
      network_(network),
      pool_(pool),
      dialer_(network, Places(options), {.every_us = options.heartbeat_us, .seed = options.uid}),
      heartbeat_us_(options.heartbeat_us) {
  dialer_.OnTick(now_us);
}

void SchedulerLink::Send(const wire::ControlMessage& message) {
  CAIRN_CHECK(connected());
  network_.Send(conn_, wire::EncodeControl(message, pool_));
}

bool SchedulerLink::OnConnected(ConnId conn, int64_t now_us) {
  if (!dialer_.OnConnected(conn)) return false;
  if (connected()) network_.Close(conn_);  // a silent one
  conn_ = conn;
  heard_us_ = now_us;
  return true;
}

bool SchedulerLink::OnDisconnect(ConnId conn, int64_t now_us) {
  return !dialer_.OnDisconnect(conn, now_us) && conn == conn_;
}

void SchedulerLink::OnTick(int64_t now_us) {
  const bool silent = connected() && now_us - heard_us_ >= kSilentHeartbeats * heartbeat_us_;
  if (!connected() || silent) dialer_.OnTick(now_us);
}

void SchedulerLink::OnHeard(int64_t now_us) {
  heard_us_ = now_us;
  dialer_.Stop();  // it was only slow
}

void SchedulerLink::DialAgain(int64_t now_us) {
  conn_ = ConnId{};
  dialer_.DialSoon(now_us);
}

void SchedulerLink::Drop(int64_t now_us) {
  network_.Close(conn_);
  DialAgain(now_us);
}

void SchedulerLink::LeaveForAnother(int64_t now_us) {
  if (!options_.standbys.empty()) Drop(now_us);
}

void SchedulerLink::Close() {
  dialer_.Stop();
  if (connected()) network_.Close(conn_);
}

void SchedulerLink::SetHeartbeat(int64_t heartbeat_us) {
  heartbeat_us_ = heartbeat_us;
  dialer_.set_every_us(heartbeat_us);
}

std::string SchedulerLink::Place() const { return ToString(dialer_.place()); }

std::string SchedulerLink::Schedulers() const {
  std::string text =
      (options_.standbys.empty() ? "the scheduler at " : "the schedulers at ") + ToString(options_.scheduler);
  for (const wire::Endpoint& standby : options_.standbys) text += ", " + ToString(standby);
  return text;
}

}  // namespace cairn::server

#include "transport/link/peer_link.h"

#include <utility>

#include "base/check.h"

namespace cairn {

PeerLink::PeerLink(wire::Endpoint place, const Times& times, uint64_t seed, Network& network,
                   BufferPool& pool, User& user)
    : place_(std::move(place)),
      times_(times),
      network_(network),
      pool_(pool),
      user_(user),
      backoff_(times.reconnect, seed) {}

void PeerLink::Start(int64_t now_us) {
  CAIRN_CHECK(phase_ == Phase::kOff);
  Dial(now_us);
}

void PeerLink::Dial(int64_t now_us) {
  CAIRN_CHECK(conn_ == ConnId{});
  phase_ = Phase::kDialing;
  since_us_ = now_us;
  conn_ = network_.Connect(place_);
  user_.OnDial(conn_);
}

void PeerLink::Stop() {
  if (phase_ == Phase::kOff) return;
  if (conn_ != ConnId{}) network_.Close(conn_);
  Forget(Phase::kOff);
}

void PeerLink::Reopen(int64_t now_us, std::string why) {
  if (!why.empty()) trouble_ = std::move(why);
  if (conn_ == ConnId{}) return;
  network_.Close(conn_);
  OnDisconnect(now_us);
}

void PeerLink::OnDisconnect(int64_t now_us) {
  if (conn_ == ConnId{}) return;
  Forget(Phase::kWaiting);
  dial_us_ = now_us + backoff_.Next();
}

void PeerLink::Forget(Phase next) {
  phase_ = next;
  bulk_progress_ = 0;
  memory_.OnGone();
  user_.OnGone(std::exchange(conn_, ConnId{}));
}

void PeerLink::OnConnected(int64_t now_us) {
  if (phase_ != Phase::kDialing) return;
  phase_ = Phase::kGreeting;
  since_us_ = now_us;
  Send(user_.Hello());
}

void PeerLink::Greeted(int64_t now_us) {
  if (phase_ != Phase::kGreeting) return;
  phase_ = Phase::kReady;
  trouble_.clear();
  if (user_.Idle()) backoff_.Reset();
  memory_.OnReady(network_.FellBack(conn_), now_us);
  user_.OnReady(now_us);
}

void PeerLink::OnTick(int64_t now_us) {
  switch (phase_) {
    case Phase::kOff: return;
    case Phase::kWaiting:
      if (now_us >= dial_us_) Dial(now_us);
      return;
    case Phase::kDialing:
    case Phase::kGreeting:
      if (now_us - since_us_ >= times_.resend_after_us) Reopen(now_us);
      return;
    case Phase::kReady: break;
  }
  const uint64_t progress = network_.BulkProgress(conn_);
  if (std::exchange(bulk_progress_, progress) != progress) user_.OnBulkProgress(now_us);
  if (user_.Overdue(times_.resend_after_us, now_us)) return Reopen(now_us);
  if (!memory_.Due(user_.Idle(), now_us)) return;
  // The connection works: its successor need not wait.
  network_.Close(conn_);
  Forget(Phase::kWaiting);
  Dial(now_us);
}

}  // namespace cairn

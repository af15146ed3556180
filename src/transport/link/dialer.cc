#include "transport/link/dialer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cairn {
namespace {
// Descriptors are not for free: an attempt more ends the oldest one.
constexpr size_t kMostAttempts = 16;
}  // namespace

Dialer::Dialer(Network& network, std::vector<wire::Endpoint> places, const Options& options)
    : network_(network),
      places_(std::move(places)),
      options_(options),
      backoff_({options.soonest_us, options.every_us}, options.seed) {
  CAIRN_CHECK(!places_.empty());
}

void Dialer::set_every_us(int64_t us) {
  options_.every_us = std::max(us, options_.soonest_us);
  backoff_.set_max_us(options_.every_us);
}

void Dialer::OnTick(int64_t now_us) {
  if (now_us < due_us_) return;
  if (attempts_.size() >= kMostAttempts) {
    const auto oldest = attempts_.begin();
    network_.Close(oldest->first);
    attempts_.erase(oldest);
  }
  attempts_[network_.Connect(places_[next_])] = next_;
  next_ = (next_ + 1) % places_.size();
  // Where there are several, the next one may well be there.
  due_us_ = now_us + std::max(options_.every_us / static_cast<int64_t>(places_.size()), options_.soonest_us);
}

bool Dialer::OnConnected(ConnId conn) {
  auto it = attempts_.find(conn);
  if (it == attempts_.end()) return false;
  at_ = it->second;
  attempts_.erase(it);
  Stop();
  return true;
}

bool Dialer::OnDisconnect(ConnId conn, int64_t now_us) {
  if (attempts_.erase(conn) == 0) return false;
  // It is the pause between rounds of the list that grows.
  const bool round = next_ == 0;
  due_us_ = std::min(due_us_, now_us + (round ? backoff_.Next() : backoff_.Shortest()));
  return true;
}

void Dialer::Stop() {
  for (const auto& [conn, place] : attempts_) network_.Close(conn);
  attempts_.clear();
}

}  // namespace cairn

// Looks for a peer that may be at one of several places: a new attempt every so often, each at the next
// place, and none given up before another one has connected. So whoever was cut off is back one interval
// after the cut, however long that was. No clock of its own; used by servers and workers for the scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "transport/link/backoff.h"
#include "transport/network.h"
#include "wire/cluster_state.h"

namespace cairn {

class Dialer {
 public:
  struct Options {
    int64_t every_us = 1'000'000;  // between attempts that get no answer, at most
    // After one that was refused; doubled each time, up to `every_us`.
    int64_t soonest_us = Backoff::Range{}.min_us;
    uint64_t seed = 1;  // pauses differ, so that not everybody comes back at one moment
  };
  // `network` must outlive it. Requires a place.
  Dialer(Network& network, std::vector<wire::Endpoint> places, const Options& options);

  // Between attempts from now on.
  void set_every_us(int64_t us);
  // Starts an attempt if one is due.
  void OnTick(int64_t now_us);
  // The next attempt is due at once, or after the shortest pause.
  void DialNow(int64_t now_us) { due_us_ = now_us; }
  void DialSoon(int64_t now_us) { due_us_ = now_us + options_.soonest_us; }
  bool Dials(ConnId conn) const { return attempts_.contains(conn); }
  // True: the connection is one of the attempts, and now the caller's. The others are given up.
  bool OnConnected(ConnId conn);
  // True: it was one of the attempts; another one follows.
  bool OnDisconnect(ConnId conn, int64_t now_us);
  // Gives up every attempt.
  void Stop();
  // The peer has answered: the pauses are short again.
  void ResetPause() { backoff_.Reset(); }

  // Where the connection that was taken last leads, or the first place.
  const wire::Endpoint& place() const { return places_[at_]; }
  const std::vector<wire::Endpoint>& places() const { return places_; }
  size_t attempts() const { return attempts_.size(); }

 private:
  Network& network_;
  const std::vector<wire::Endpoint> places_;
  Options options_;
  std::map<ConnId, size_t> attempts_;  // at which place; the oldest first
  size_t next_ = 0;                    // place to try
  size_t at_ = 0;
  int64_t due_us_ = INT64_MIN;
  Backoff backoff_;
};

}  // namespace cairn

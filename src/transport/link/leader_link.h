// A node's connection to its scheduler, or to the one of several that leads: dials until it has one, and
// others beside one that is silent. What is said over it, and who leads, is its user's business. No clock of
// its own.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "transport/link/dialer.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn {

class LeaderLink {
 public:
  struct Options {
    std::vector<wire::Endpoint> places;
    int64_t heartbeat_us = 1'000'000;  // until the scheduler says how often it wants to hear of its nodes
    int64_t soonest_us = Dialer::Options{}.soonest_us;
    uint64_t seed = 1;
  };
  // A connection on which so many heartbeats in a row get no answer is not relied on alone; well before the
  // scheduler takes the node for dead.
  static constexpr int64_t kSilentHeartbeats = 2;

  // `network` and `pool` outlive it.
  LeaderLink(Options options, Network& network, BufferPool& pool);

  // Begins to dial.
  void Start(int64_t now_us) { dialer_.OnTick(now_us); }
  void Close();  // for good

  bool connected() const { return conn_ != ConnId{}; }
  bool Is(ConnId conn) const { return connected() && conn == conn_; }
  // Whether events of this connection are for the link.
  bool Owns(ConnId conn) const { return Is(conn) || dialer_.Dials(conn); }
  // Counts connections: what was sent on an older one may be lost.
  uint64_t connection_number() const { return connection_number_; }
  void Send(const wire::ControlMessage& message);  // nothing while it is not connected

  // True if it is connected by this.
  bool OnConnected(ConnId conn, int64_t now_us);
  // True if this was the connection; DialAgain has to follow, or Close.
  bool OnDisconnect(ConnId conn, int64_t now_us);
  void OnTick(int64_t now_us);
  // Something came on the connection: no other one is tried any more.
  void OnHeard(int64_t now_us);
  // What came is from a scheduler that leads.
  void OnLed() { dialer_.ResetPause(); }

  // Goes on without the connection: it is lost, it makes no sense, or its scheduler does not lead (then only
  // where there is another one).
  void DialAgain(int64_t now_us);
  void Drop(int64_t now_us);
  void LeaveForAnother(int64_t now_us);

  int64_t heartbeat_us() const { return heartbeat_us_; }
  void SetHeartbeat(int64_t heartbeat_us);
  bool several() const { return places().size() > 1; }
  // The scheduler that it talks to, or dials; and all of them.
  const wire::Endpoint& place() const { return dialer_.place(); }
  const std::vector<wire::Endpoint>& places() const { return dialer_.places(); }

 private:
  Network& network_;
  BufferPool& pool_;
  Dialer dialer_;
  int64_t heartbeat_us_;
  ConnId conn_;  // 0: none yet, or lost
  uint64_t connection_number_ = 0;
  int64_t heard_us_ = 0;  // on this connection
};

}  // namespace cairn

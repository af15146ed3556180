// A link to one peer that outlives its connections. It dials, says hello, and is ready once the peer has
// answered. A connection that is lost, refused or silent is made again after a pause. What was sent on the
// old one counts as lost: the user keeps it in a ResendQueue (resend_queue.h) and sends it again. Pauses grow
// until the peer has answered for something, or lets us in while it has nothing to answer for: one that takes
// a hello and then fails at what is sent gets that again more and more seldom.
//
// A worker has one for each shard thread, a primary's shard thread one for each that backs it up. (The
// scheduler is looked for at several places, by several attempts at a time: dialer.h.) A state machine
// without sockets, clocks or threads; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/ids.h"
#include "transport/link/backoff.h"
#include "transport/link/shared_memory_retry.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace cairn {

class PeerLink {
 public:
  struct Times {
    int64_t resend_after_us = 3'000'000;  // so long without a sign of the peer: a new connection
    Backoff::Range reconnect;             // pauses between connections
  };
  // What differs between links. Only OnReady may use the link from inside.
  class User {
   public:
    virtual ~User() = default;
    // There is a connection whose events are this link's, until OnGone.
    virtual void OnDial(ConnId conn) = 0;
    // The first message on a connection. Its answer comes to the user, who says Greeted or Reopen.
    virtual wire::ControlMessage Hello() const = 0;
    // What the peer does not have may be sent, for the first time or again.
    virtual void OnReady(int64_t now_us) = 0;
    // Nothing that was sent on it counts as sent any more.
    virtual void OnGone(ConnId conn) = 0;
    // Large frames move: what is behind them can't be answered meanwhile.
    virtual void OnBulkProgress(int64_t now_us) = 0;
    // Whether what was sent has waited for too long. Asked while it is ready.
    virtual bool Overdue(int64_t limit_us, int64_t now_us) const = 0;
    // Whether nothing waits for the peer.
    virtual bool Idle() const = 0;
  };

  // The references outlive it. `seed`: of the pauses.
  PeerLink(wire::Endpoint place, const Times& times, uint64_t seed, Network& network, BufferPool& pool,
           User& user);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // Dials. Requires that it is off.
  void Start(int64_t now_us);
  void Stop();
  // Events of its connection.
  void OnConnected(int64_t now_us);
  void OnDisconnect(int64_t now_us);
  void OnTick(int64_t now_us);

  // The peer's answer to the hello is good. Nothing happens unless it is awaited.
  void Greeted(int64_t now_us);
  // The peer has taken something of what it was sent.
  void Answered() { backoff_.Reset(); }
  // Gives the connection up, if there is one; the next one comes after a pause. `why`: in the peer's words,
  // or what was wrong with them; empty: that is not known.
  void Reopen(int64_t now_us, std::string why = {});
  // What the peer says goes wrong, for trouble().
  void set_trouble(std::string text) { trouble_ = std::move(text); }
  // How long the user waits before it tries again what the peer could not take: as between connections.
  int64_t Pause() { return backoff_.Next(); }
  // Lost unless there is a connection.
  void Send(wire::FramePtr frame) { network_.Send(conn_, std::move(frame)); }
  void Send(const wire::ControlMessage& message) { Send(wire::EncodeControl(message, pool_)); }

  bool on() const { return phase_ != Phase::kOff; }
  bool greeting() const { return phase_ == Phase::kGreeting; }
  bool ready() const { return phase_ == Phase::kReady; }
  // Whether nothing can damage frames on their way.
  bool OneHost() const { return wire::IsLoopback(place_) || network_.SharesMemory(conn_); }
  // What a peer has said since it was last ready, or what was wrong with it; may be empty.
  const std::string& trouble() const { return trouble_; }

 private:
  enum class Phase { kOff, kWaiting, kDialing, kGreeting, kReady };

  void Dial(int64_t now_us);
  void Forget(Phase next);

  const wire::Endpoint place_;
  const Times times_;
  Network& network_;
  BufferPool& pool_;
  User& user_;
  Backoff backoff_;
  transport::SharedMemoryRetry memory_;

  Phase phase_ = Phase::kOff;
  ConnId conn_;                 // 0: none
  int64_t since_us_ = 0;        // kDialing, kGreeting: when that began
  int64_t dial_us_ = 0;         // kWaiting: until then
  uint64_t bulk_progress_ = 0;  // of the network, when last looked at
  std::string trouble_;
};

}  // namespace cairn

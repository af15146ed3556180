// Both ends of the stream of operations from one shard thread to one of another server: numbered
// frames, kept until confirmed, taken in order. docs/internals/consistency.md, rules 40 to 42. State machines
// without sockets, clocks or threads; what is in the frames is the shard's business, connections are
// transport/link/peer_link.h's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "server/slots/shard_bounds.h"
#include "transport/link/peer_link.h"
#include "transport/link/resend_queue.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"
#include "wire/frame.h"
#include "wire/replica.h"

namespace cairn::server {

class ReplicaSender;
using SendersByConn = std::map<ConnId, ReplicaSender*>;

// Who talks to whom. Both incarnations are part of it: a restarted server is another peer.
struct ReplicaRoute {
  std::string cluster_id;
  uint16_t from_server = 0, from_thread = 0;
  Incarnation from_incarnation;
  uint16_t to_server = 0, to_thread = 0;
  Incarnation to_incarnation;
  wire::Endpoint endpoint;  // of the peer
};

// The sending end. It has to live as long as the peer's incarnation is in the state: the receiver
// remembers the numbers, so a second sender of the same route would never be understood.
// What it keeps is bounded by its owner, who looks at unconfirmed_bytes().
class ReplicaSender final : private PeerLink::User {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Every frame up to `up_to` has been taken. `refused`, by slot: the receiver has taken nothing of
    // these slots in some frame up to `up_to` (and nothing in later ones up to it), since it knows of a
    // newer epoch (`number`) or does not back them: none of those frames counts for them. Called for
    // every confirmation that is news or names a slot; what it names is repeated in later ones. The
    // sender may be used and stopped from inside, not destroyed.
    virtual void OnConfirmed(ReplicaSender& sender, uint64_t up_to, std::span<const wire::SlotEntry> refused,
                             int64_t now_us) = 0;
  };

  // `by_conn` has this sender under its connection while it has one. All references outlive it.
  ReplicaSender(ReplicaRoute route, const PeerLink::Times& times, Network& network, BufferPool& pool,
                SendersByConn& by_conn, Listener& listener);
  ~ReplicaSender() override;
  ReplicaSender(const ReplicaSender&) = delete;
  ReplicaSender& operator=(const ReplicaSender&) = delete;

  void Start(int64_t now_us);
  void Stop();  // for good: forgets what is unconfirmed, and calls nobody any more
  void OnConnected(int64_t now_us) { link_.OnConnected(now_us); }
  void OnMessage(const wire::InFrame& frame, int64_t now_us);
  void OnDisconnect(int64_t now_us) { link_.OnDisconnect(now_us); }
  void OnTick(int64_t now_us) { link_.OnTick(now_us); }

  // Operations for the next frame. Flush once it has wire::kOpRoom / 2 bytes or more.
  wire::OpBatch& batch() { return batch_; }
  // The number that the next frame, with what is in batch() now, will have.
  uint64_t next_number() const { return next_; }
  // Sends the batch as one frame, or keeps it until there is a connection. Nothing where it is empty.
  void Flush(uint64_t state_version, int64_t now_us);

  // The receiver has every frame up to this one.
  uint64_t confirmed() const { return confirmed_; }
  uint64_t unconfirmed_bytes() const { return unconfirmed_bytes_; }
  // How long nothing has been confirmed while something waits for it; 0 where all are confirmed.
  int64_t oldest_unconfirmed_us(int64_t now_us) const;
  bool ready() const { return link_.ready(); }
  uint64_t sent_bytes() const { return sent_bytes_; }  // each frame counted once
  uint64_t resent_frames() const { return resent_frames_; }
  const ReplicaRoute& route() const { return route_; }
  // "server 1 thread 0 at 10.0.0.2:7001", and why there is no stream to it; empty: there is.
  std::string Describe() const;
  std::string Trouble() const;

 private:
  struct Unconfirmed {
    wire::FramePtr frame;
    int64_t flushed_us = 0;
    bool sent = false;
  };

  // PeerLink::User.
  void OnDial(ConnId conn) override { by_conn_[conn] = this; }
  wire::ControlMessage Hello() const override;
  void OnReady(int64_t now_us) override;
  void OnGone(ConnId conn) override { by_conn_.erase(conn); }
  void OnBulkProgress(int64_t now_us) override { progress_us_ = now_us; }
  bool Overdue(int64_t limit_us, int64_t now_us) const override;
  bool Idle() const override { return queue_.empty(); }

  void OnControl(const wire::InFrame& frame, int64_t now_us);
  void OnGreeted(uint64_t received, int64_t now_us);
  void OnAck(const wire::InFrame& frame, int64_t now_us);
  void SendUnsent();
  uint64_t last_number() const { return next_ - 1; }

  const ReplicaRoute route_;
  SendersByConn& by_conn_;
  Listener& listener_;
  PeerLink link_;
  int64_t progress_us_ = 0;  // on this connection: when something last went forward, or began to wait

  wire::OpBatch batch_;
  uint64_t next_ = 1;
  uint64_t confirmed_ = 0;
  int64_t confirmed_us_ = 0;        // when it last rose
  ResendQueue<Unconfirmed> queue_;  // numbers confirmed_ + 1 … next_ - 1
  uint64_t unconfirmed_bytes_ = 0;
  uint64_t sent_bytes_ = 0, resent_frames_ = 0;
};

// The receiving end, one for each (incarnation, thread) that sends here, for as long as that
// incarnation is in the state; connections come and go. The shard does, with each kReplicate frame:
// kNext and its state is as new as the frame's: the operations, then Taken(); kNext otherwise, and
// kGap: Hold(); then all that NextHeld() gives, likewise; and in every case one MakeAck().
class ReplicaReceiver {
 public:
  enum class Verdict { kNext, kDuplicate, kGap };
  Verdict Take(const wire::FrameHeader& header) const;
  // The next frame has been dealt with, whatever became of its operations.
  void Taken();
  uint64_t received() const { return received_; }

  // Keeps a frame that can't be dealt with yet: an earlier one is missing, or the state that it was
  // sent under. Moves its body out. Of more than `most_bytes` the last ones are dropped.
  void Hold(wire::InFrame& frame, uint64_t most_bytes = ShardBounds{}.most_held_bytes);
  // The next frame, if it is held and was sent under this state or an older one. To be looked at after
  // every Taken() and every new state.
  std::optional<wire::InFrame> NextHeld(StateVersion have);
  uint64_t held_bytes() const { return held_bytes_; }

  // Nothing of this slot was taken from the next frame; every confirmation says so from now on, since
  // one that is lost or overtaken must not make the later ones say more than is true …
  void Refuse(SlotId slot, uint64_t newer_epoch);
  // … until something of it has been taken from a later frame.
  void Accept(SlotId slot);

  wire::FramePtr MakeAck(StateVersion version, BufferPool& pool) const;
  // The answer to a good ReplicaHello. It confirms nothing: a MakeAck has to follow it.
  wire::FramePtr MakeHelloReply(BufferPool& pool) const;

 private:
  uint64_t received_ = 0;
  std::map<uint64_t, wire::InFrame> held_;  // by number, all above received_
  uint64_t held_bytes_ = 0;
  std::map<uint32_t, uint64_t> refused_;  // slot → the newer epoch
};

}  // namespace cairn::server

// The link to a shard thread (transport/link/peer_link.h has its connections): sends its unanswered frames in
// order, and again (unanswered_frames.h), and takes answers, which count only where they match one of them.
// docs/internals/consistency.md, rules 23 and 24. What answers mean to a request is the listener's
// business.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/status.h"
#include "client/links/answer_size.h"
#include "client/links/client_options.h"
#include "client/links/gap_doubts.h"
#include "client/links/outgoing.h"
#include "client/links/slot_book.h"
#include "client/links/unanswered_frames.h"
#include "transport/link/peer_link.h"
#include "transport/network.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::client {

class ShardLink;
using LinksByConn = std::map<ConnId, ShardLink*>;

class ShardLink final : private PeerLink::User {
 public:
  enum class Verdict { kTaken, kStale, kMalformed };
  class Listener {
   public:
    virtual ~Listener() = default;
    struct Answer {
      uint16_t flags = 0;       // FrameFlag
      StateVersion made_under;  // the state that the shard had when it made the answer, at least
      Round round;
    };
    virtual Verdict OnValues(const Outgoing& frame, const Answer& answer, const wire::ValuesView& values) = 0;
    virtual void OnApplied(SlotId slot, Seq seq) = 0;
    // The frame is answered and out of the queue.
    virtual void OnFrameEnd(const Outgoing& frame, const Status& outcome, const Answer& answer,
                            int64_t now_us) = 0;
    // The shard has a newer state than the book says.
    virtual void OnNewerState(StateVersion version, int64_t now_us) = 0;
    // What the shard says of the state that it has: a StateAt or a StateMessage.
    virtual void OnStateOf(ShardLink& link, wire::ControlMessage& message) = 0;
    virtual void OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message) = 0;
    // This worker can't go on. The link's Stop is called from inside.
    virtual void OnLinkFatal(Status why, int64_t now_us) = 0;
  };
  struct Peer {
    uint16_t server = 0, thread = 0;
    wire::Endpoint endpoint;
    Incarnation server_incarnation;
    std::string cluster_id;
    Incarnation worker;
  };

  ShardLink(Peer peer, const ClientCoreOptions& options, Network& network, BufferPool& pool, SlotBook& book,
            LinksByConn& by_conn, Listener& listener);

  void Connect(int64_t now_us) { link_.Start(now_us); }
  void Stop();  // for good; forgets the queue
  void OnConnected(int64_t now_us) { link_.OnConnected(now_us); }
  void OnMessage(const wire::InFrame& frame, int64_t now_us);
  void OnDisconnect(int64_t now_us) { link_.OnDisconnect(now_us); }
  void OnTick(int64_t now_us);

  // After a new slot map (docs/internals/consistency.md, rule 48). Takes out the frames that the shard
  // thread is no longer right for, marks those that stay but were made under a state too old for their
  // slots, and returns the former, in order. Nothing is sent before Resume.
  struct Moving {
    uint64_t id = 0;
    Outgoing frame;
  };
  struct Home {
    bool here = true;
    StateVersion stamp;  // the frame must be made under this version or a later one
  };
  std::vector<Moving> TakeMisplaced(const std::function<Home(const Outgoing&)>& home_of, int64_t now_us);
  // A frame that was on another link, or is part of one: goes to its place in the order of ids.
  void Insert(uint64_t id, Outgoing frame);
  void Resume(int64_t now_us);

  // Ids rise. Sends it at once if it may.
  void Enqueue(uint64_t id, Outgoing frame, int64_t now_us);
  // Forgets an unanswered frame; its answer will be ignored. Not for numbered pushes.
  void Drop(uint64_t id);
  // From now on refers to nothing of the caller's memory: an unanswered frame gets a copy of its
  // values, and a connection that may still hold the old one is made anew.
  void DisownBorrowed(uint64_t id, int64_t now_us);
  // A message that needs no answer and is not repeated; only if the link is ready.
  void Tell(const wire::ControlMessage& message);
  // Seals a frame that is to be sent on this link.
  void Seal(wire::Frame& frame) const;

  // True if the last frame that asked belonged to another trip. Numbers as the listener gives them.
  bool BeginTrip(uint64_t trip) { return std::exchange(trip_, trip) != trip; }
  const Peer& peer() const { return peer_; }
  bool ready() const { return link_.ready(); }
  // Of a frame that comes on its connection (answer_size.h).
  uint64_t MostBodyBytes(const wire::FrameHeader& header) const;
  uint64_t frames_sent() const { return frames_sent_; }
  uint64_t rewinds() const { return rewinds_; }
  // "server 1 thread 0 at 10.0.0.2:7001", and why it does not answer, where that is known.
  std::string Describe() const;
  std::string Trouble() const;

 private:
  using Frame = UnansweredFrames::Iterator;

  // PeerLink::User.
  void OnDial(ConnId conn) override { by_conn_[conn] = this; }
  wire::ControlMessage Hello() const override;
  void OnReady(int64_t now_us) override;
  void OnGone(ConnId conn) override;
  void OnBulkProgress(int64_t now_us) override { unanswered_.NoteProgress(now_us); }
  bool Overdue(int64_t limit_us, int64_t now_us) const override;
  bool Idle() const override { return unanswered_.empty(); }

  void Pump(int64_t now_us);
  bool TooFarAhead(const Outgoing& frame) const;
  void SendOne(Outgoing& frame, int64_t now_us);
  void Rewind(int64_t now_us);
  void SendMarked(int64_t now_us);
  static Listener::Answer AnswerOf(const Outgoing& frame, const wire::FrameHeader& answer);
  bool Restamp(Outgoing& frame, StateVersion stamp);
  void ForgetSlots(const Outgoing& frame);
  // Unanswered, and for good: another link has it, or nobody waits for it.
  Outgoing LetGo(Frame it);
  void End(Frame it, const Status& outcome, const wire::FrameHeader& answer, int64_t now_us);

  void OnControl(const wire::InFrame& frame, int64_t now_us);
  void OnPushReply(Frame it, const wire::InFrame& frame, int64_t now_us);
  void OnGap(const wire::SlotEntry& gap, int64_t now_us);
  void OnValuesReply(Frame it, const wire::InFrame& frame, int64_t now_us);
  void OnError(Frame it, const wire::InFrame& frame, int64_t now_us);
  void TryLater(Outgoing& frame, int64_t now_us);

  const Peer peer_;
  const ClientCoreOptions& options_;
  BufferPool& pool_;
  SlotBook& book_;
  LinksByConn& by_conn_;
  Listener& listener_;
  PeerLink link_;

  UnansweredFrames unanswered_;
  GapDoubts doubts_;
  // Of this connection.
  AnswerSize answer_size_;
  int64_t rewind_us_ = 0;  // 0: no rewind is due
  int64_t marked_us_ = 0;  // when to send the frames marked `again`
  bool reopen_ = false;    // after the message under way

  uint32_t damaged_ = 0;  // frames in a row that the peer took for damaged
  uint64_t frames_sent_ = 0, rewinds_ = 0;
  uint64_t trip_ = 0;
};

}  // namespace cairn::client

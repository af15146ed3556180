// Who backs the slots that this shard is the primary of, and how far each backup is: a stream to each shard
// thread that backs one of them, what was shipped and confirmed, and what is committed by that
// (docs/internals/consistency.md, rules 40, 41 and 43). What goes over the streams is the business of
// PrimarySide and SlotCopies; CommitGate reads how far everybody is. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/planted.h"
#include "base/recycled.h"
#include "cairn/status.h"
#include "server/replication/replica_stream.h"
#include "server/slots/news_flag.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "wire/cluster_state.h"
#include "wire/replica.h"

namespace cairn::server {

// A slot's content on its way to a backup.
struct SlotCopy {
  std::vector<std::byte> content;
  uint64_t index = 0;  // the position that it was taken at
  size_t sent = 0;     // bytes
  uint64_t chunks = 0;
  std::deque<uint64_t> under_way;  // frames with pieces that are not confirmed
  bool ended = false;              // the end is sent too
  uint64_t behind_bytes = 0;       // of later operations, which the backup keeps until the end
  int64_t began_us = 0;
};

struct BackupStream {
  BackupStream(ReplicaRoute route, const PeerLink::Times& times, Network& network, BufferPool& pool,
               SendersByConn& by_conn, ReplicaSender::Listener& listener)
      : sender(std::move(route), times, network, pool, by_conn, listener) {}

  // An operation of a slot with several backups: which frame it is in.
  struct Note {
    uint64_t number = 0;
    uint32_t local = 0;
    uint64_t index = 0;
  };
  ReplicaSender sender;
  RecycledDeque<Note> notes;
  // SlotCopies'.
  uint32_t copying = OwnedSlots::kNotHere;  // the slot whose copy is under way
  SlotCopy copy;
  int64_t next_copy_us = 0;
  uint32_t first_waiting = 0;  // no local slot below it waits to be copied to over this stream
};

// One backup of a slot.
struct SlotBackup {
  enum class Phase : uint8_t {
    kWaiting,  // for its turn to be copied to
    kCopying,  // the copy is under way; operations go behind it
    kWaited,   // the copy is confirmed: answers wait for this backup too
    kInSync,   // and the state says so
  };
  uint16_t server = 0;  // index
  StateVersion added;
  BackupStream* stream = nullptr;
  Phase phase = Phase::kWaiting;
  int64_t since_us = 0;          // when this primary heard of it
  uint64_t shipped = 0;          // the stream's frame with the last thing sent for this slot
  uint64_t copy_end = 0;         // kCopying: the frame that ends the copy
  uint64_t confirmed_index = 0;  // known only where several backups make it matter
  uint64_t first_shipped = 0;    // the first frame with anything for this backup
  bool caught_up = false;        // kWaited: all that was shipped before is confirmed by all
  std::vector<std::pair<BackupStream*, uint64_t>> caught_up_marks;  // what that was
  bool compared = false;                                            // as the heir, with what the primary has
  bool broken = false;  // it refuses what it is sent, under our own epoch
  bool waited() const { return phase >= (CAIRN_BUG(kCaughtUpNotWaited) ? Phase::kInSync : Phase::kWaited); }
  // It gets operations (and has, or will have, what comes before them).
  bool fed() const { return phase >= Phase::kCopying; }
  // Everything shipped for the slot has been confirmed.
  bool Confirmed() const { return shipped <= stream->sender.confirmed(); }
};

// One slot's. Nobody backs a slot of which this shard is not the primary.
struct BackedSlot {
  std::vector<SlotBackup> all;
  uint64_t committed = 0;  // an index; known only where several backups make it matter
  bool commit_untold = false;
  bool deposed = false;  // a backup has a newer epoch: nothing more is acknowledged

  // Those that are fed, and those that can't follow too: until they are dropped they may be on record as in
  // sync.
  size_t CountFed() const;
  // All that is waited for is confirmed.
  bool Drained() const;
};

class Backups {
 public:
  // `listener` hears what the streams' other ends confirm. All outlive it.
  Backups(const ShardContext& context, Network& network, const OwnedSlots& slots, NewsFlag& news,
          ReplicaSender::Listener& listener)
      : context_(context), network_(network), slots_(slots), news_(news), listener_(listener) {}

  // Slots, by local number.
  void AddSlot() { backed_.emplace_back(); }
  BackedSlot& operator[](uint32_t local) { return backed_[local]; }
  const BackedSlot& operator[](uint32_t local) const { return backed_[local]; }
  // A backup becomes the primary: what it has applied is committed.
  void TakeOver(uint32_t local);
  // This shard is not the slot's primary any more: nobody backs it here.
  void Clear(uint32_t local);
  // Those that the state names, by a slot's primary.
  void Update(uint32_t local, const wire::SlotOwner& owner);

  // Streams, in the order of incarnation and thread.
  using Streams = std::map<std::pair<Incarnation, uint32_t>, std::unique_ptr<BackupStream>>;
  Streams& streams() { return streams_; }
  const Streams& streams() const { return streams_; }
  bool none() const { return streams_.empty(); }
  BackupStream* Find(const ReplicaSender& sender);
  ReplicaSender* SenderOn(ConnId conn);  // or null
  // Those to servers that are gone, stopped. Nothing here points to them any more.
  std::vector<std::unique_ptr<BackupStream>> TakeGone();
  void FlushIfFull(ReplicaSender& sender);
  void FlushAll();
  bool Slow(const ReplicaSender& sender) const;  // for so long that the scheduler is to hear of it

  // What was just added to the backup's batch is about this slot. `note`: its confirmation may commit the
  // slot's last operation.
  void Shipped(uint32_t local, SlotBackup& backup, bool note);
  // What an operation sent now says is committed: what the only backup receives is committed by that.
  uint64_t CommittedWith(uint32_t local, size_t fed) const {
    return fed == 1 ? slots_[local].index() : backed_[local].committed;
  }
  void Break(SlotBackup& backup);
  // The stream's other end has taken nothing of this slot in some frame up to `up_to`.
  void OnSlotRefused(BackupStream& stream, const wire::SlotEntry& entry, uint64_t up_to);
  // Takes the notes of what is confirmed.
  void OnConfirmed(BackupStream& stream, uint64_t up_to);
  void Recommit(uint32_t local);

  // Backups that can't keep up slow down those who push.
  Status CheckBacklog() const;
  bool WaitsFor(uint32_t local, uint32_t server) const;
  uint64_t sent_bytes() const;
  uint64_t unconfirmed_bytes() const;

 private:
  BackupStream* StreamTo(uint16_t server, uint16_t thread);
  bool Feeds(const BackupStream& stream) const;

  const ShardContext& context_;
  Network& network_;
  const OwnedSlots& slots_;
  NewsFlag& news_;
  ReplicaSender::Listener& listener_;
  SendersByConn senders_by_conn_;  // outlives the streams
  Streams streams_;
  std::deque<BackedSlot> backed_;  // by local slot
};

}  // namespace cairn::server

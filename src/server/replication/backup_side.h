// The backup's side of replication (docs/internals/consistency.md, rules 40, 42 to 44 and 51): frames of
// operations are taken in order, confirmed on receipt, and applied when they are committed; copies of slots
// come in the same way. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "server/replication/replica_stream.h"
#include "server/replication/slot_content.h"
#include "server/slots/live_clients.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"
#include "wire/control.h"
#include "wire/replica.h"

namespace cairn::server {

class BackupSide {
 public:
  // All outlive it.
  BackupSide(const ShardContext& context, Outbox& outbox, const LiveClients& clients, OwnedSlots& slots,
             Tables& tables, SlotContent& content)
      : context_(context),
        outbox_(outbox),
        clients_(clients),
        slots_(slots),
        tables_(tables),
        content_(content) {}

  // Slots, by local number; as shard/slot_roles.cc says.
  void AddSlot() { backups_.emplace_back(); }
  // The slot's role is that of a backup now; `was`: what it was.
  void Begin(uint32_t local, OwnedSlot::Role was, const wire::SlotOwner& owner, const wire::Backup& backup);
  using Tail = std::deque<std::vector<std::byte>>;
  // What has been received and not applied: it goes to the other owners too, if this one is promoted.
  const Tail& tail(uint32_t local) const { return backups_[local].tail; }
  // Applies all of the tail. False if the copy is not whole after all.
  bool Promote(uint32_t local);
  // Nothing of the slot is here any more.
  void Clear(uint32_t local);
  // A newer state: forgets servers that are gone, and takes frames that have waited for it.
  void OnState();

  // Connections of primaries. ok: OnHello may follow.
  Status CheckHello(const wire::ReplicaHello& hello) const;
  void OnHello(ConnId conn, const wire::ReplicaHello& hello);
  bool Knows(ConnId conn) const { return connections_.contains(conn); }
  void OnFrame(ConnId conn, wire::InFrame& frame);  // of one that it knows
  void OnDisconnect(ConnId conn);

  // Nothing where the copy is not whole.
  Position Received(uint32_t local) const;
  Position Applied(uint32_t local) const;
  uint64_t tail_bytes() const { return tail_bytes_; }

 private:
  struct Backup {
    bool whole = false;  // the copy is whole, or there was nothing to copy
    StateVersion added;
    uint64_t line_epoch = 0;  // operations are taken under this epoch
    uint64_t received = 0;    // index of the last operation received, of the primary of now
    // Not yet applied: from applied + 1 to `received`; and behind that what an earlier primary has sent,
    // under `kept_epoch`, until the primary of now has sent the same, or something else.
    Tail tail;
    uint64_t kept_epoch = 0;
    bool copying = false;
    uint64_t chunks = 0;
    ByteWriter copy;
  };
  // The other end of a stream whose primary is elsewhere.
  using SourceKey = std::pair<Incarnation, uint32_t>;  // incarnation, thread
  struct Source {
    ReplicaReceiver receiver;
    uint16_t server = 0;
    ConnId conn;  // the newest
#ifdef CAIRN_WITH_PLANTED_BUGS
    bool meant_another = false;
#else
    static constexpr bool meant_another = false;
#endif
  };

  // Where the copy is whole: the last operation that it has, of whichever primary.
  uint64_t Held(uint32_t local) const { return slots_[local].index() + backups_[local].tail.size(); }
  void TakeHeldFrames(Source& source);
  void TakeOperations(Source& source, const wire::InFrame& frame);
  Status TakeOperation(uint16_t from, const wire::OpView& op);
  Status BeginCopy(uint32_t local, const wire::OpHeader& header);
  Status TakeChunk(Backup& backup, const wire::OpView& op);
  Status EndCopy(uint32_t local, const wire::OpView& op);
  Status ContinueUnder(uint32_t local, const wire::OpHeader& header);
  Status TakeNext(uint32_t local, const wire::OpView& op);
  bool Keeps(uint32_t local, const wire::OpView& op);
  void PopTail(Backup& backup);
  bool ApplyTail(uint32_t local, uint64_t committed);
  bool Apply(uint32_t local, const wire::OpView& op);
  bool ApplyPush(uint32_t local, TableState* table, const wire::OpView& op);
  Status CompareHash(uint32_t local, const wire::OpHeader& header) const;

  const ShardContext& context_;
  Outbox& outbox_;
  const LiveClients& clients_;
  OwnedSlots& slots_;
  Tables& tables_;
  SlotContent& content_;
  std::deque<Backup> backups_;  // by local slot
  std::map<SourceKey, Source> sources_;
  std::map<ConnId, SourceKey> connections_;
  uint64_t tail_bytes_ = 0;
};

}  // namespace cairn::server

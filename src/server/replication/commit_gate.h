// Nothing is answered before it is committed (docs/internals/consistency.md, rule 41): answers wait here
// until the backups have confirmed what they are about. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/status.h"
#include "server/replication/backups.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "wire/frame.h"

namespace cairn::server {

class CommitGate {
 public:
  // All outlive it.
  CommitGate(const ShardContext& context, const OwnedSlots& slots, const Backups& backups, Outbox& outbox)
      : context_(context), slots_(slots), backups_(backups), outbox_(outbox) {}

  // Sends an answer about these slots, or about every slot here, once all that it tells is committed.
  void Send(ConnId conn, wire::FramePtr frame, std::span<const wire::SlotEntry> entries, bool every_slot);

  void OnConfirmed(const BackupStream& stream);
  void OnStreamGone(const BackupStream& stream);
  // The owners have changed: what each answer waits for is looked at again.
  void OnState();
  // Clients that ask again get another answer.
  void Forget(ConnId conn);
  // A client that hears nothing takes its connection for dead and sends everything again.
  void TellWaiting();
  uint64_t held() const { return held_.size(); }

 private:
  struct Held {
    ConnId conn;
    wire::FramePtr frame;
    bool every_slot = false;                                         // is about all slots of the shard
    RecycledVector<uint32_t> locals;                                 // else: about these
    RecycledVector<std::pair<const BackupStream*, uint64_t>> marks;  // frames that have to be confirmed
    int64_t told_us = 0;  // when it was made, or its client was last told that it waits
  };
  using HeldAnswers = RecycledMap<uint64_t, Held>;  // by the order of making

  template <class Look>
  void ForEachLocal(const Held& held, Look look) const;
  void Mark(Held& held) const;
  void Advance(uint64_t id);
  void Fail(HeldAnswers::iterator it);
  std::string WaitsFor(const Held& held) const;  // in words

  const ShardContext& context_;
  const OwnedSlots& slots_;
  const Backups& backups_;
  Outbox& outbox_;
  HeldAnswers held_;
  uint64_t next_ = 1;
  // Those that wait for a stream: (frame, held answer), by frame.
  std::map<const BackupStream*, RecycledDeque<std::pair<uint64_t, uint64_t>>> waiting_;
  std::vector<uint64_t> blocked_;   // held until the owners change
  RecycledMap<ConnId, bool> told_;  // of one look at them
};

}  // namespace cairn::server

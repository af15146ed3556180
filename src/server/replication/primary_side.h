// The primary's side of replication (docs/internals/consistency.md, rules 40, 41, 44, 45, 47 and 51): the
// operations that go to the backups, what their confirmations mean, and what the scheduler is told of them.
// Who the backups are is in Backups, whole slots go by SlotCopies. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "server/replication/backups.h"
#include "server/replication/replica_stream.h"
#include "server/replication/slot_content.h"
#include "server/replication/slot_copies.h"
#include "server/slots/news_flag.h"
#include "server/slots/owned_slots.h"
#include "server/slots/request.h"
#include "server/slots/shard_context.h"
#include "server/slots/slot_round.h"
#include "transport/network.h"
#include "wire/control.h"
#include "wire/replica.h"

namespace cairn::server {

class PrimarySide final : private ReplicaSender::Listener {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // More of what went over this stream is confirmed; the backups' state is up to date.
    virtual void OnConfirmed(const BackupStream& stream) = 0;
    // The stream is about to be destroyed; its server is gone.
    virtual void OnStreamGone(const BackupStream& stream) = 0;
  };

  // All outlive it.
  PrimarySide(const ShardContext& context, Network& network, const OwnedSlots& slots,
              const SlotContent& content, NewsFlag& news, Listener& listener);

  Backups& backups() { return backups_; }
  const Backups& backups() const { return backups_; }
  bool Backed(uint32_t local) const { return !backups_[local].all.empty(); }

  // A new state, in this order: streams to servers that are gone; then the slots, one by one, by those who
  // know their roles (shard/slot_roles.cc); then all of them have been looked at; then tables too.
  void DropStreams();
  // The slot's new primary says where it begins, and sends what may not be everywhere yet.
  void TellPromoted(uint32_t local, const std::deque<std::vector<std::byte>>& tail);
  void OnOwners() { copies_.OnOwners(); }
  void OnState();

  // What has just been applied, at the slot's position, to the backups. `keep`: where the values lie; null:
  // they are copied.
  void ShipPush(const Request& request, const Part& part, const wire::PushParams& params,
                const std::shared_ptr<const Buffer>& keep);
  void ShipRefusal(const Request& request, const Part& part, const Status& why);
  void ShipSumUp(TableId table, const SlotRound& round, const table::SlotTable& rows, uint32_t local);
  // Before the round is closed here: the sums are gone then.
  void ShipClose(TableId table, const SlotRound& round, const ClosedRound& closed,
                 const table::SlotTable& rows, uint32_t local);

  void OnTick();
  void Flush();  // at the end of every event: copies go on, and what was shipped leaves
  std::vector<wire::SlotNews> news() const;

 private:
  void OnConfirmed(ReplicaSender& sender, uint64_t up_to, std::span<const wire::SlotEntry> refused,
                   int64_t now_us) override;
  void Ship(uint32_t local, wire::OpHeader header, const wire::PushParams* params,
            std::span<const RowKey> keys, table::Mask mask, std::span<const std::byte> payload,
            const std::shared_ptr<const Buffer>& keep = nullptr);
  void ShipNothing(uint32_t local);
  bool OutOfReach(const SlotBackup& backup) const;
  void TellCommits();
  void SendHash();
  wire::OpHeader HashOf(uint32_t local) const;
  void CompareWithHeirs();

  const ShardContext& context_;
  const OwnedSlots& slots_;
  const SlotContent& content_;
  NewsFlag& news_;
  Listener& listener_;
  Backups backups_;
  SlotCopies copies_;
  uint32_t next_hashed_ = 0;
  int64_t hash_us_ = 0;
};

}  // namespace cairn::server

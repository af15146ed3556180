// Copies of slots, as the primary sends them (docs/internals/consistency.md, rule 43): a slot's content is
// taken at one position and goes into the stream in pieces, a few at a time, so that operations of other
// slots pass between them; the slot's own later operations go along, and the backup keeps them. One copy at a
// time for each stream. The shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/replication/backups.h"
#include "server/replication/slot_content.h"
#include "server/slots/news_flag.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "wire/replica.h"

namespace cairn::server {

class SlotCopies {
 public:
  // All outlive it.
  SlotCopies(const ShardContext& context, const OwnedSlots& slots, const SlotContent& content,
             Backups& backups, NewsFlag& news)
      : context_(context), slots_(slots), content_(content), backups_(backups), news_(news) {}

  // A new state has changed who backs what: forgets copies to those who do not any more.
  void OnOwners();
  // Goes on with the copies under way and begins those that may; at the end of every event.
  void Advance();
  // An operation of this many bytes goes behind the copy that is under way to this backup.
  void NoteBehind(const SlotBackup& backup, size_t bytes);
  void OnConfirmed(BackupStream& stream, uint64_t up_to, int64_t now_us);
  // Backups whose copy is there and that have all that was shipped before are reported.
  void CheckCaughtUp();

 private:
  void Begin(uint32_t local, SlotBackup& backup);
  void Add(BackupStream& stream, SlotBackup& backup, wire::OpKind kind, uint64_t a,
           std::span<const std::byte> payload);
  void SendChunks(BackupStream& stream);
  SlotBackup* CopiedTo(BackupStream& stream);  // by the copy under way; or null

  const ShardContext& context_;
  const OwnedSlots& slots_;
  const SlotContent& content_;
  Backups& backups_;
  NewsFlag& news_;
  uint32_t wanted_ = 0;                // backups that wait for their turn to be copied to
  std::vector<uint32_t> catching_up_;  // slots with a backup that is about to be reported
};

}  // namespace cairn::server

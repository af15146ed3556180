// What a new state makes of the slots here (docs/internals/consistency.md, rules 42 to 45 and 50): which this
// shard is the primary of, which it backs, who backs its own; promotion, handing over, letting go. It changes
// the roles in OwnedSlots and tells both sides of replication. The shard's thread.
#pragma once

#include <cstdint>

#include "server/replication/backup_side.h"
#include "server/replication/primary_side.h"
#include "server/slots/news_flag.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "wire/cluster_state.h"

namespace cairn::server {

class SlotRoles {
 public:
  // All outlive it.
  SlotRoles(const ShardContext& context, OwnedSlots& slots, PrimarySide& primary_side,
            BackupSide& backup_side, NewsFlag& news)
      : context_(context),
        slots_(slots),
        primary_side_(primary_side),
        backup_side_(backup_side),
        news_(news) {}

  // By the context's state; requires that the server is registered. True if a slot for which requests may be
  // waiting is no longer taken care of here.
  bool Update();
  // Long before an index is too large for a position; on every tick.
  void WatchPositions();

 private:
  uint32_t Place(uint32_t slot);
  void BePrimary(uint32_t local, const wire::SlotOwner& owner);
  void BeBackup(uint32_t local, const wire::SlotOwner& owner, const wire::Backup& backup);
  void LetGo(uint32_t local);
  void Ruin(OwnedSlot& slot, OwnedSlot::Ruin ruin);

  const ShardContext& context_;
  OwnedSlots& slots_;
  PrimarySide& primary_side_;
  BackupSide& backup_side_;
  NewsFlag& news_;
};

}  // namespace cairn::server

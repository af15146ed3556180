// What tests and the simulator's checkers ask of a shard (shard.h says what each means): it reads, and never
// changes anything. The shard's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "server/replication/backup_side.h"
#include "server/replication/commit_gate.h"
#include "server/replication/primary_side.h"
#include "server/shard/shard.h"
#include "server/slots/live_clients.h"
#include "server/slots/owned_slots.h"
#include "server/slots/tables.h"

namespace cairn::server {

class Inspection {
 public:
  // All outlive it.
  Inspection(const LiveClients& clients, const OwnedSlots& slots, const Tables& tables,
             const PrimarySide& primary_side, const BackupSide& backup_side, const CommitGate& gate)
      : clients_(clients),
        slots_(slots),
        tables_(tables),
        primary_side_(primary_side),
        backup_side_(backup_side),
        gate_(gate) {}

  Position Received(SlotId slot) const;
  Position Applied(SlotId slot) const;
  bool WaitsFor(SlotId slot, uint32_t server) const;
  Shard::HighWater high_water() const;
  Seq LastSeq(SlotId slot, Incarnation incarnation) const;
  std::vector<Shard::Refusal> RefusalsOf(SlotId slot, Incarnation incarnation) const;
  Round OpenRound(TableId table, SlotId slot) const;
  void ForEachRow(TableId table, SlotId slot,
                  const std::function<void(RowKey, std::span<const std::byte>)>& row) const;

 private:
  bool Present(SlotId slot) const { return slots_.RoleOf(slot) != Shard::SlotRole::kNone; }
  uint32_t Local(SlotId slot) const { return slots_.LocalOfAny(slot.value); }

  const LiveClients& clients_;
  const OwnedSlots& slots_;
  const Tables& tables_;
  const PrimarySide& primary_side_;
  const BackupSide& backup_side_;
  const CommitGate& gate_;
};

}  // namespace cairn::server

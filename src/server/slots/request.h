// A worker's data frame that has passed the fence, as the parts of a shard get it; and one slot's part of
// what it carries. Both point into the frame.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "cairn/types.h"
#include "server/slots/live_clients.h"
#include "server/slots/owned_slots.h"
#include "server/slots/table_state.h"
#include "table/slot_table.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::server {

struct Request {
  ConnId conn;
  const LiveClient* client;
  wire::InFrame& frame;
  const wire::FrameHeader& header() const { return frame.header; }
  Incarnation incarnation() const { return client->incarnation; }
  TableId table() const { return TableId{frame.header.table}; }
  Round round() const { return Round{frame.header.round}; }
  bool has(wire::FrameFlag flag) const { return (frame.header.flags & flag) != 0; }
};

// One slot's part of a push or contribution.
struct Part {
  const wire::SlotEntry& entry;
  uint32_t local;
  std::span<const RowKey> keys;
  std::span<const std::byte> values;
  table::Mask mask;
};

// Calls take(Part) for each entry. Values are cut only if `shape`, the push's against its table, is ok; the
// table may be null if it is not.
template <class Take>
void ForEachPart(const OwnedSlots& slots, const TableState* table, const wire::PushView& push,
                 const Status& shape, Take take) {
  const size_t unit = table == nullptr ? 0 : UnitBytes(table->info.spec);
  const bool sparse = table != nullptr && table->sparse();
  size_t key_at = 0, value_at = 0;
  for (const wire::SlotEntry& entry : push.entries) {
    Part part{entry, slots.LocalOf(entry.slot), {}, {}, push.mask};
    if (shape.ok()) {
      if (sparse) part.keys = push.keys.subspan(key_at, entry.count);
      part.values = push.values.subspan(value_at, entry.count * unit);
      key_at += entry.count;
      value_at += entry.count * unit;
    }
    take(part);
  }
}

// The part against its table's rows; ok if it can be applied or staged. `what` is "push" or "contribution".
Status CheckPart(const TableState* table, const Status& shape, const wire::PushParams& params,
                 const Part& part, const char* what);
// Requires that it has passed the check; here or on a backup.
void ApplyPart(table::SlotTable& rows, const wire::PushParams& params, std::span<const RowKey> keys,
               std::span<const std::byte> values, table::Mask mask);

// What a part of a push or contribution costs (rule 53), and which rows it asks for. `table` is null if it
// was dropped.
inline void CountPush(OwnedSlot& slot, TableState* table, const Part& part) {
  slot.work.Push(part.keys.size(), part.values.size());
  if (table != nullptr) table->hot.Note(part.keys);
}

}  // namespace cairn::server

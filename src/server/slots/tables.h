// The tables of a shard: made and dropped as the states say, with their rows in the slots that are here; what
// they weigh, and which rows are asked for most. What the parts of requests do to a table's rows and rounds
// is the business of push/, round/ and pull/. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "server/slots/dropped_tables.h"
#include "server/slots/hot_report.h"
#include "server/slots/owned_slots.h"
#include "server/slots/row_weights.h"
#include "server/slots/shard_context.h"
#include "server/slots/table_state.h"
#include "table/memory/arena.h"
#include "table/slot_table.h"

namespace cairn::server {

class Tables {
 public:
  // Both outlive it.
  Tables(const ShardContext& context, const OwnedSlots& slots)
      : context_(context), slots_(slots), arena_(context.options().pages) {}

  // Makes them those of the context's state, in the slots that are here now. `before`: the state before, or
  // null: then everything may have changed. Returns those that have been dropped, by id.
  std::vector<TableId> Update(const wire::ClusterState* before);

  using Map = std::map<TableId, TableState>;
  Map& all() { return tables_; }
  const Map& all() const { return tables_; }
  TableState* Find(TableId id);  // or null
  const TableState* Find(TableId id) const;
  // For a request. Null with ok: the table has been dropped.
  Status Find(TableId id, TableState** table);
  // What decides how large a request for a table may be, dropped or not; null: it is not known.
  const TableSpec* SpecOf(TableId id) const;

  // Empty rows for this slot.
  void MakeRows(TableState& table, uint32_t local,
                table::SlotTable::Purpose purpose = table::SlotTable::Purpose::kToUse);

  // Bytes of contributions that wait for their turn in a deterministic sum. The frames count themselves
  // (KeptFrame), so it outlives the rounds.
  uint64_t& early_bytes() { return early_bytes_; }
  uint64_t early_bytes() const { return early_bytes_; }

  void AgeHotRows();  // on every tick
  // For the heartbeats.
  const RowWeights& Weigh() const;
  std::vector<wire::SlotLoad> loads() const;
  HotReport hot_rows() const;
  uint64_t reusable_bytes() const { return arena_.mapped_bytes() - arena_.used_bytes(); }
  // How often a new state or a report has made it look at what one table has in one slot, so far.
  uint64_t looks_at_rows() const { return weights_.looks() + updates_; }

 private:
  std::vector<TableId> Drop();

  const ShardContext& context_;
  const OwnedSlots& slots_;
  table::Arena arena_;        // outlives the tables
  uint64_t early_bytes_ = 0;  // likewise
  Map tables_;
  DroppedTables dropped_;
  mutable RowWeights weights_;  // of tables_: counted when somebody asks
  uint64_t updates_ = 0;        // pairs of a table and a slot that new states made it look at
  int64_t hot_aged_us_ = 0;
};

}  // namespace cairn::server

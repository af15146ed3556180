// All that a shard holds of one table: its rows, slot by slot, and its rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "server/slots/clocks.h"
#include "server/slots/hot_rows.h"
#include "server/slots/table_rounds.h"
#include "table/slot_table.h"
#include "wire/cluster_state.h"

namespace cairn::server {

inline size_t ElementBytes(const TableSpec& spec) { return spec.element == ElementType::kInt64 ? 8 : 4; }
// Bytes of one unit of an entry's count: a sparse row or a dense element.
inline size_t UnitBytes(const TableSpec& spec) {
  return ElementBytes(spec) * (spec.kind == TableKind::kSparse ? spec.dim : 1);
}

struct TableState {
  wire::TableInfo info;
  std::vector<std::unique_ptr<table::SlotTable>> rows;  // by local slot; null where it moved away
  HotRows hot;                                          // sparse tables only
  TableRounds rounds;                                   // sync tables only
  Clocks clocks;                                        // bounded tables only

  bool sync() const { return info.spec.mode == Mode::kSync; }
  bool bounded() const { return info.spec.staleness != kUnbounded; }
  bool sparse() const { return info.spec.kind == TableKind::kSparse; }
};

}  // namespace cairn::server

// All that a shard holds of one table: its rows, slot by slot, and its rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "server/round/done_marks.h"
#include "server/shard/hot_rows.h"
#include "server/shard/owned_slots.h"
#include "server/round/round.h"
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

  // Sync tables only.
  std::vector<SlotRound> rounds;  // by local slot
  DoneMarks marks;
  Round latest_start;         // the highest first round of any view
  std::optional<Round> held;  // while a view is pending: neither this round nor a later one closes
  bool Held(Round round) const { return held && round >= *held; }
  Round lowest_open, highest_open;        // over the slots that this shard is the primary of
  uint32_t at_lowest = 0;                 // slots whose open round is the lowest
  uint32_t summed_at_lowest = 0;          // and those of them in which it is summed up
  uint32_t unclean_slots = 0;             // slots whose last round ended in more than ok for somebody
  uint32_t joined_slots = 0;              // slots whose last round had only joined workers
  std::vector<ParkedId> waiting_for_all;  // done marks, until the lowest open round rises
  // First-phase marks, until the lowest open round is summed up in every slot, or rises.
  std::vector<ParkedId> waiting_for_reports;

  bool AllSummedUp() const { return at_lowest > 0 && summed_at_lowest == at_lowest; }
  // Every slot here has reached what such a request waits for.
  bool AllReached(Round needed, bool first_phase) const {
    return at_lowest == 0 || lowest_open >= needed ||
           (first_phase && lowest_open.Next() == needed && AllSummedUp());
  }
  bool sync() const { return info.spec.mode == Mode::kSync; }
  bool sparse() const { return info.spec.kind == TableKind::kSparse; }
};

}  // namespace cairn::server

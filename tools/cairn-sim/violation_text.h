// What checkers call things in their reports.
#pragma once

#include <string>

#include "base/ids.h"
#include "server/shard/shard.h"

namespace cairn::sim {

inline std::string Words(SlotId slot, Position at) {
  return "slot " + std::to_string(slot.value) + " at (" + std::to_string(at.epoch()) + ", " +
         std::to_string(at.index()) + ")";
}
inline std::string Words(TableId table, Round round) {
  return "round " + std::to_string(round.value) + " of table " + std::to_string(table.value);
}
inline std::string Words(TableId table, SlotId slot, Round round) {
  return Words(table, round) + " in slot " + std::to_string(slot.value);
}
inline std::string Words(const server::CloseRecord& r) { return Words(r.table, r.slot, r.round); }

}  // namespace cairn::sim

#include "server/slots/dropped_tables.h"

namespace cairn::server {

void DroppedTables::Add(TableId id, const TableSpec& spec) {
  TableSpec kept;
  kept.kind = spec.kind;
  kept.element = spec.element;
  kept.size = spec.size;
  kept.dim = spec.dim;
  specs_.insert_or_assign(id, kept);
  if (specs_.size() > kMost) specs_.erase(specs_.begin());
}

const TableSpec* DroppedTables::Find(TableId id) const {
  const auto it = specs_.find(id);
  return it == specs_.end() ? nullptr : &it->second;
}

}  // namespace cairn::server

#include "scheduler/rules/tables.h"

#include <algorithm>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {

Status CheckRoom(const wire::ClusterState& state, std::span<const TableSpec* const> specs) {
  if (specs.empty()) return Status::Ok();
  if (state.tables.size() + specs.size() > kMaxTables)
    return {Code::kResourceExhausted, "there are " + Count(state.tables.size(), "table") + ", and with " +
                                          (specs.size() == 1 ? "one" : std::to_string(specs.size())) +
                                          " more there would be more than " + std::to_string(kMaxTables) +
                                          ", which is the limit: drop some, or pack several into one"};
  size_t segments = 0;
  for (const TableSpec* spec : specs) segments += spec->segments.size();
  for (const wire::TableInfo& table : state.tables) segments += table.spec.segments.size();
  if (segments <= kMaxSegmentsOfAll) return Status::Ok();
  return {Code::kResourceExhausted,
          "with table \"" + specs.back()->name + "\" all tables would have " + std::to_string(segments) +
              " segments, and " + std::to_string(kMaxSegmentsOfAll) +
              " is the limit: drop tables that nobody uses, or put small tensors into one segment"};
}

TableId AddTable(DurableState& d, const TableSpec& spec) {
  wire::ClusterState& state = d.state;
  TableId id = state.next_table;
  if (CAIRN_BUG(kTableIdReused)) {
    for (TableId old(1); old < state.next_table; old = old.Next())
      if (state.FindTable(old) == nullptr) id = old;
  }
  auto at = std::find_if(state.tables.begin(), state.tables.end(),
                         [&](const wire::TableInfo& table) { return table.id > id; });
  state.tables.insert(at, {id, spec, state.view});
  state.next_table = std::max(state.next_table, id.Next());
  std::erase(d.dropped_names, spec.name);
  return id;
}

void RemoveTable(DurableState& d, TableId id) {
  const wire::TableInfo* table = d.state.FindTable(id);
  CAIRN_CHECK(table != nullptr);
  d.dropped_names.push_back(table->spec.name);
  if (d.dropped_names.size() > kMaxDroppedNames) d.dropped_names.erase(d.dropped_names.begin());
  std::erase_if(d.state.tables, [&](const wire::TableInfo& t) { return t.id == id; });
}

void RememberOperation(DurableState& d, Incarnation incarnation, uint64_t request, TableId table,
                       size_t most) {
  d.operations.push_back({incarnation, request, table, d.state.version});
  auto mine = [&](const TableOperation& operation) { return operation.incarnation == incarnation; };
  if (std::count_if(d.operations.begin(), d.operations.end(), mine) <= static_cast<ptrdiff_t>(most)) return;
  CAIRN_AT_BOUND(kTableRequests);
  d.operations.erase(std::find_if(d.operations.begin(), d.operations.end(), mine));
}

const TableOperation* FindOperation(const DurableState& d, Incarnation incarnation, uint64_t request) {
  for (const TableOperation& operation : d.operations)
    if (operation.incarnation == incarnation && operation.request == request) return &operation;
  return nullptr;
}

}  // namespace cairn::scheduler

// The catalogue of tables (rule 8), and which requests have changed it. Pure; table_spec.h says which specs
// there can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/status.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

inline constexpr size_t kMaxTables = 4096;
// Each takes 8 bytes of the state, which is sent whole.
inline constexpr size_t kMaxSegmentsOfAll = 262144;

// Whether these, which are not there yet, fit into the state.
Status CheckRoom(const wire::ClusterState& state, std::span<const TableSpec* const> specs);
// Requires CheckSpec and CheckRoom, and that no table has the name.
TableId AddTable(DurableState& d, const TableSpec& spec);
void RemoveTable(DurableState& d, TableId table);
// Remembers that the request has been carried out in d.state.version, and of each worker the last `most`.
void RememberOperation(DurableState& d, Incarnation incarnation, uint64_t request, TableId table,
                       size_t most);
const TableOperation* FindOperation(const DurableState& d, Incarnation incarnation, uint64_t request);

}  // namespace cairn::scheduler

// Whether the servers have the memory for a dense table before it is made (rule 8): a table that does
// not fit would kill one server after the other. A pure rule over what servers say in their heartbeats.
// Sparse tables grow with their rows: of them nothing is known in advance.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/memory_limits.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "wire/cluster_state.h"

namespace cairn::scheduler {

// What a server has said of itself.
struct ServerMemory {
  uint32_t server = 0;  // index
  MemoryLeft left;
  uint64_t dense_bytes = 0;  // what its dense tables took at that moment
};

// Arrays that every owner of a slot keeps for it: the values, the optimizer's state, and in a sync table
// the sums of the open round.
uint32_t DenseArrays(const TableSpec& spec);
// One copy of a dense table, all of its arrays; 0 for a sparse one. Requires CheckSpec.
uint64_t DenseBytes(const TableSpec& spec);

// Whether every server has room for its part of the table: memory that other dense tables have been
// promised and not taken yet (their state comes with the first step) is not room. Servers that are not in
// `servers`, or know no limit, are taken to have it. Requires CheckSpec and slots with owners.
Status CheckMemory(const wire::ClusterState& state, const TableSpec& spec,
                   std::span<const ServerMemory> servers);

// The servers (indexes) that have no room for so many bytes more: nothing is copied to them.
std::vector<uint32_t> WithoutRoom(std::span<const ServerMemory> servers, uint64_t bytes);

// ", and its last report said …" where a server that is lost had next to nothing left; else empty.
std::string ProbablyOutOfMemory(const MemoryLeft& left, uint64_t memory_bytes);

// "3.5 GiB"
std::string Bytes(uint64_t bytes);

}  // namespace cairn::scheduler

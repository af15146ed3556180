// Where a dense table's elements lie in one slot: the runs of blocks, packed, and the pieces that
// the table's segments have in them. Pure functions of the spec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"
#include "wire/cluster_state.h"

namespace cairn::table {

// The elements of one segment in one slot. Blocks are packed in ascending order, so they lie next
// to each other: a segment has one piece in a slot, or none.
struct DensePiece {
  uint32_t segment = 0;
  size_t begin = 0;  // in the packed slot
  size_t count = 0;
};

// The runs of one slot: RunsBySlot(layout)[slot] without computing those of all the others.
std::vector<wire::DenseRun> RunsOf(const wire::DenseLayout& layout, SlotId slot);
// The pieces of these runs, ascending. `segments` as in TableSpec.
std::vector<DensePiece> PiecesOf(const std::vector<wire::DenseRun>& runs,
                                 const std::vector<uint64_t>& segments);
// Segments of a table: at least 1.
inline size_t SegmentCount(const TableSpec& spec) { return spec.segments.empty() ? 1 : spec.segments.size(); }

}  // namespace cairn::table

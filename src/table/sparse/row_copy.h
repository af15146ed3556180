// Keys and their rows as bytes: what a sparse slot and its staging are copied as.
//
//   | number of rows, 8 B | bytes of a row, 8 B | all keys, 8 B each | all rows |
//
// Rows get numbers in the order of the bytes. What is read is not trusted: a length that does not
// fit, a key of another slot or one that is there twice is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/byte_stream.h"
#include "base/ids.h"
#include "cairn/types.h"
#include "table/sparse/line_index.h"
#include "table/sparse/row_slabs.h"

namespace cairn::table {

// The bytes of so many rows.
size_t RowCopyBytes(size_t count, size_t row_bytes);
// What stands in front of keys and rows.
void SaveRowsHead(ByteWriter& out, size_t count, size_t row_bytes);
// All that the index has, in the order of the rows' numbers. Requires that every row has its key there.
void SaveRows(ByteWriter& out, const LineIndex& index, const RowSlabs& rows);
// The reverse, into an empty index and empty slabs; keys[i] belongs to the i-th row then. False if
// the bytes are something else: then all three are empty.
bool LoadRows(ByteReader& in, SlotId slot, uint32_t slot_count, LineIndex& index, RowSlabs& rows,
              std::vector<RowKey>& keys);

}  // namespace cairn::table

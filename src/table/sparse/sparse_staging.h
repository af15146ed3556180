// The sums of one sync round of a sparse table in one slot: a row for every key that somebody
// contributed to. Emptied each round at the cost of what was in it; memory is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_stream.h"
#include "base/ids.h"
#include "cairn/types.h"
#include "table/memory/arena.h"
#include "table/sparse/line_index.h"
#include "table/sparse/row_slabs.h"

namespace cairn::table {

class SparseStaging {
 public:
  SparseStaging(Arena& arena, ElementType element, uint32_t dim, uint64_t seed);

  // Adds weight × values, row by row; the first to a key is copied. int64 ignores the weight.
  void Add(std::span<const RowKey> keys, std::span<const std::byte> values, float weight);
  void Clear();
  // All keys and their sums as bytes, in the order of keys(). Load is the reverse, into an empty one,
  // for keys of this slot. False if the bytes are not what Save makes: then it is empty still.
  void Save(ByteWriter& out) const;
  bool Load(ByteReader& in, SlotId slot, uint32_t slot_count);

  // All keys with sums, in the order in which they first came: sums over rows are made in it, so it
  // depends on what was added and on nothing else. The sums of keys()[i].
  std::span<const RowKey> keys() const { return keys_; }
  const std::byte* SumsOf(size_t i) const { return sums_.At(numbers_[i]); }
  uint64_t memory_bytes() const;

 private:
  const ElementType element_;
  const uint32_t dim_;
  LineIndex index_;
  RowSlabs sums_;
  std::vector<RowKey> keys_;
  std::vector<uint32_t> numbers_;  // keys_[i]'s row; the index's layout decides which number it gets
  std::vector<uint8_t> fresh_;     // by row number: made, but nothing has been copied into it yet
};

}  // namespace cairn::table

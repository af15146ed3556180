// Rows of one size, in chunks from the arena. A row's number says where it lies: chunk and place,
// so that an address costs one load, a shift and a multiplication. No keys: the index has them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "table/memory/arena.h"

namespace cairn::table {

class RowSlabs {
 public:
  // So many have numbers, whatever their size.
  static constexpr uint64_t kMostRows = uint64_t{1} << 30;

  // `arena` must outlive it. Requires row_bytes > 0.
  RowSlabs(Arena& arena, size_t row_bytes);
  RowSlabs(const RowSlabs&) = delete;
  RowSlabs& operator=(const RowSlabs&) = delete;
  ~RowSlabs();

  // A new row, contents undefined; its number is below LineIndex::kFurther. Addresses that At gave before may
  // have become invalid (the first chunk grows by moving); numbers stay.
  uint32_t Add();
  std::byte* At(uint32_t row) const {
    return chunks_[row >> place_bits_] + static_cast<size_t>(row & place_mask_) * row_bytes_;
  }
  // New rows with these contents, as if by one Add after the other. Requires that they fit:
  // count() + so many <= kMostRows.
  void AddAll(std::span<const std::byte> rows);
  // f(bytes) for the rows in the order of their making, many at a time.
  template <class F>
  void ForEachRun(F f) const {
    for (uint64_t at = 0; at < count_; at += rows_per_chunk_) {
      const uint64_t rows = count_ - at < rows_per_chunk_ ? count_ - at : rows_per_chunk_;
      f(std::span<const std::byte>(At(RowOf(at)), rows * row_bytes_));
    }
  }
  // Forgets all rows and keeps the memory for the next ones. Numbers start again.
  void Clear() { count_ = 0; }
  // The number of the i-th row added since the last Clear.
  uint32_t RowOf(size_t i) const {
    return static_cast<uint32_t>((i / rows_per_chunk_) << place_bits_ | i % rows_per_chunk_);
  }

  // The reverse: how many rows had been added before it.
  uint64_t OrderOf(uint32_t row) const {
    return uint64_t{row >> place_bits_} * rows_per_chunk_ + (row & place_mask_);
  }

  uint64_t count() const { return count_; }
  size_t row_bytes() const { return row_bytes_; }
  uint64_t memory_bytes() const;

 private:
  void MakeRoom();

  Arena& arena_;
  const size_t row_bytes_;
  const uint32_t rows_per_chunk_;
  const uint32_t place_bits_;
  const uint32_t place_mask_;
  uint64_t count_ = 0;
  uint64_t capacity_ = 0;
  uint32_t first_rows_ = 0;  // what the first chunk has room for
  std::vector<std::byte*> chunks_;
};

}  // namespace cairn::table

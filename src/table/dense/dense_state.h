// The state arrays of a dense table's optimizer in one slot: columns 1 to 3 of cairn/types.h.
// Memory is taken when a step or an assign first needs it; until then every element reads as its
// column's initial value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "optimizer/update.h"
#include "table/memory/arena.h"

namespace cairn::table {

class DenseState {
 public:
  // `initial` has a number for each column.
  DenseState(Arena& arena, std::span<const float> initial, size_t elements);
  ~DenseState();
  DenseState(const DenseState&) = delete;
  DenseState& operator=(const DenseState&) = delete;

  uint32_t columns() const { return columns_; }
  bool made() const { return made_; }
  // Takes the memory of all columns where that has not happened. Requires elements.
  void Make();
  // The same, and the caller fills every element of every column at once.
  void MakeUnfilled();
  // Column i + 1 at i; requires Make.
  float* const* arrays() const { return arrays_; }
  // Requires 1 <= column <= columns().
  float* array(uint8_t column) const { return arrays_[column - 1]; }
  void Read(uint8_t column, float* out) const;
  // By content: state that is not made yet hashes as what it reads as.
  uint64_t Hash(uint64_t seed) const;
  uint64_t memory_bytes() const;

 private:
  size_t PieceBytes(uint32_t column) const;

  Arena& arena_;
  const uint32_t columns_;
  const size_t elements_;
  float initial_[optimizer::kMaxStateColumns] = {};
  bool made_ = false;
  float* arrays_[optimizer::kMaxStateColumns] = {};
};

}  // namespace cairn::table

// What lies in a row of a sparse table: its values (narrow ones: TableSpec::storage), then the optimizer's
// state, column after column. A column of state has as many numbers as the row, or one where the optimizer
// keeps one a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/types.h"
#include "optimizer/update.h"

namespace cairn::table {

class RowLayout {
 public:
  // Requires spec.dim > 0.
  explicit RowLayout(const TableSpec& spec);

  // What the values of a row take in it, and as they are pushed and read.
  size_t value_bytes() const { return value_bytes_; }
  size_t given_bytes() const { return given_bytes_; }
  size_t row_bytes() const { return value_bytes_ + columns_ * width_ * sizeof(float); }
  uint32_t columns() const { return columns_; }  // of state

  // Where each column of a row's state lies.
  struct State {
    float* column[optimizer::kMaxStateColumns] = {};
  };
  State StateOf(std::byte* row) const {
    State state;
    auto* at = reinterpret_cast<float*>(row + value_bytes_);
    for (uint32_t c = 0; c < columns_; ++c) state.column[c] = at + c * width_;
    return state;
  }
  // The state of a row before its first step.
  void FillState(std::byte* row) const;
  // Column `column` (from 1) of a row, or of one that is missing (null): dim numbers.
  void ReadState(const std::byte* row, uint8_t column, float* out) const;
  // Column `column` (from 1) of a row becomes these dim numbers; where a row has one, the first of them.
  void PutState(std::byte* row, uint8_t column, const float* values) const;

 private:
  const uint32_t dim_;
  const size_t given_bytes_;
  const size_t value_bytes_;
  const uint32_t columns_;
  const size_t width_;  // numbers of a column in a row
  float initial_[optimizer::kMaxStateColumns] = {};
};

}  // namespace cairn::table

#include "table/sparse/row_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "optimizer/narrow.h"
#include "optimizer/span_ops.h"

namespace cairn::table {

RowLayout::RowLayout(const TableSpec& spec)
    : dim_(spec.dim),
      given_bytes_(spec.dim * size_t{spec.element == ElementType::kFloat32 ? 4u : 8u}),
      value_bytes_(spec.storage == Storage::kFull ? given_bytes_
                                                  : optimizer::NarrowElements(spec.dim) * sizeof(uint16_t)),
      columns_(StateColumns(spec.optimizer, spec.optimizer_flags)),
      width_(spec.optimizer == OptimizerKind::kRowwiseAdagrad ? 1 : spec.dim) {
  CAIRN_CHECK(spec.dim > 0 && columns_ <= optimizer::kMaxStateColumns);
  for (uint32_t c = 0; c < columns_; ++c)
    initial_[c] = optimizer::InitialState(spec.optimizer, c, spec.initial_state);
}

void RowLayout::FillState(std::byte* row) const {
  auto* at = reinterpret_cast<float*>(row + value_bytes_);
  for (uint32_t c = 0; c < columns_; ++c) at = std::fill_n(at, width_, initial_[c]);
}

void RowLayout::ReadState(const std::byte* row, uint8_t column, float* out) const {
  CAIRN_CHECK(column >= 1 && column <= columns_);
  const uint32_t c = column - 1;
  if (row == nullptr) {
    std::fill_n(out, dim_, initial_[c]);
    return;
  }
  const auto* at = reinterpret_cast<const float*>(row + value_bytes_) + c * width_;
  if (width_ == 1) {
    std::fill_n(out, dim_, *at);
  } else {
    std::memcpy(out, at, dim_ * sizeof(float));
  }
}

void RowLayout::PutState(std::byte* row, uint8_t column, const float* values) const {
  CAIRN_CHECK(column >= 1 && column <= columns_);
  auto* const at = reinterpret_cast<float*>(row + value_bytes_) + (column - 1) * width_;
  optimizer::ReplaceSpan({at, width_}, {values, width_}, {});
}

}  // namespace cairn::table

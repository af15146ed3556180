#include "table/sparse_staging.h"

#include <cstring>
#include <utility>

#include "optimizer/kernels.h"
#include "table/row_pipeline.h"

namespace cairn::table {

SparseStaging::SparseStaging(Arena& arena, ElementType element, uint32_t dim, uint64_t seed)
    : element_(element),
      dim_(dim),
      index_(arena, seed),
      sums_(arena, dim * size_t{element == ElementType::kFloat32 ? 4u : 8u}) {}

void SparseStaging::Add(std::span<const RowKey> keys, std::span<const std::byte> values, float weight) {
  const auto missing = [this](RowKey key, uint64_t hash) {
    const uint32_t row = sums_.Add();
    index_.Insert(key, hash, row);
    keys_.push_back(key);
    if (row >= fresh_.size()) fresh_.resize(row + 1);
    fresh_[row] = 1;
    return row;
  };
  const auto first_use = [this](uint32_t row) { return std::exchange(fresh_[row], 0) != 0; };
  if (element_ == ElementType::kInt64) {
    const auto* g = reinterpret_cast<const uint64_t*>(values.data());
    ForRows(index_, sums_, keys, missing, [&](size_t i, uint32_t row) {
      auto* sum = reinterpret_cast<uint64_t*>(sums_.At(row));
      if (first_use(row)) {
        std::memcpy(sum, g + i * dim_, dim_ * sizeof(uint64_t));
      } else {
        optimizer::Sum(sum, g + i * dim_, dim_);
      }
    });
    return;
  }
  const auto* g = reinterpret_cast<const float*>(values.data());
  WithDim(dim_, [&](auto dim) {
    ForRows(index_, sums_, keys, missing, [&](size_t i, uint32_t row) {
      auto* sum = reinterpret_cast<float*>(sums_.At(row));
      if (first_use(row)) {
        optimizer::StageCopy(sum, g + i * dim, dim, weight);
      } else {
        optimizer::StageAdd(sum, g + i * dim, dim, weight);
      }
    });
  });
}

void SparseStaging::Clear() {
  index_.Clear(keys_);
  sums_.Clear();
  keys_.clear();
}

uint64_t SparseStaging::memory_bytes() const {
  return sizeof(*this) + index_.memory_bytes() + sums_.memory_bytes() + keys_.capacity() * sizeof(RowKey) +
         fresh_.capacity();
}

}  // namespace cairn::table

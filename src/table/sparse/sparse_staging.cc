#include "table/sparse/sparse_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "optimizer/span_ops.h"
#include "table/sparse/row_copy.h"
#include "table/sparse/row_pipeline.h"

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
    if (row >= fresh_.size()) fresh_.resize(row + 1);
    fresh_[row] = 1;
    return row;
  };
  const auto first_use = [&](size_t i, uint32_t row) {
    if (std::exchange(fresh_[row], 0) == 0) return false;
    keys_.push_back(keys[i]);
    numbers_.push_back(row);
    return true;
  };
  if (element_ == ElementType::kInt64) {
    const auto* g = reinterpret_cast<const uint64_t*>(values.data());
    ForRows(index_, sums_, keys, missing, [&](size_t i, uint32_t row) {
      auto* sum = reinterpret_cast<uint64_t*>(sums_.At(row));
      if (first_use(i, row)) {
        std::memcpy(sum, g + i * dim_, dim_ * sizeof(uint64_t));
      } else {
        optimizer::SumSpan({sum, dim_}, {g + i * dim_, dim_});
      }
    });
    return;
  }
  const auto* g = reinterpret_cast<const float*>(values.data());
  ForRowGroups(index_, sums_, keys, missing, [&](size_t first, std::span<const uint32_t> group) {
    float* sums[kGroup];  // of those that have one: the others are copied before anything is added
    const float* added[kGroup];
    size_t count = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      auto* sum = reinterpret_cast<float*>(sums_.At(group[i]));
      const float* given = g + (first + i) * dim_;
      if (first_use(first + i, group[i])) {
        optimizer::StageCopySpan({sum, dim_}, {given, dim_}, weight);
      } else {
        sums[count] = sum;
        added[count++] = given;
      }
    }
    optimizer::StageAddRows({sums, count}, added, dim_, weight);
  });
}

void SparseStaging::Clear() {
  index_.Clear(keys_);
  sums_.Clear();
  keys_.clear();
  numbers_.clear();
}

void SparseStaging::Save(ByteWriter& out) const {
  const size_t row_bytes = sums_.row_bytes();
  out.Reserve(RowCopyBytes(keys_.size(), row_bytes));
  SaveRowsHead(out, keys_.size(), row_bytes);
  out.PutRaw(std::as_bytes(std::span(keys_)));
  std::byte* to = out.Extend(keys_.size() * row_bytes);
  for (const uint32_t row : numbers_) {
    std::memcpy(to, sums_.At(row), row_bytes);
    to += row_bytes;
  }
}

bool SparseStaging::Load(ByteReader& in, SlotId slot, uint32_t slot_count) {
  CAIRN_CHECK(keys_.empty());
  if (!LoadRows(in, slot, slot_count, index_, sums_, keys_)) return false;
  for (size_t i = 0; i < keys_.size(); ++i) numbers_.push_back(sums_.RowOf(i));
  if (!keys_.empty()) fresh_.assign(std::max<size_t>(fresh_.size(), numbers_.back() + size_t{1}), 0);
  return true;
}

uint64_t SparseStaging::memory_bytes() const {
  return sizeof(*this) + index_.memory_bytes() + sums_.memory_bytes() + keys_.capacity() * sizeof(RowKey) +
         numbers_.capacity() * sizeof(uint32_t) + fresh_.capacity();
}

}  // namespace cairn::table

#include "table/sparse_slot.h"

#include <xxhash.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/random.h"
#include "optimizer/kernels.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"
#include "table/row_pipeline.h"

namespace cairn::table {
namespace {

size_t ElementBytes(ElementType element) { return element == ElementType::kFloat32 ? 4 : 8; }

std::string Where(const std::string& table, SlotId slot) {
  return "table \"" + table + "\", slot " + std::to_string(slot.value);
}

}  // namespace

SparseSlot::SparseSlot(const wire::TableInfo& info, SlotId slot, uint32_t slot_count, Arena& arena)
    : name_(info.spec.name),
      element_(info.spec.element),
      optimizer_(info.spec.optimizer),
      flags_(info.spec.optimizer_flags),
      check_finite_(element_ == ElementType::kFloat32 && info.spec.non_finite == NonFinitePolicy::kReject),
      dim_(info.spec.dim),
      slot_(slot),
      slot_count_(slot_count),
      initial_(info.spec.init, info.id, info.spec.element),
      arena_(arena),
      index_(arena, Mix64(info.id.value, slot.value)),
      rows_(arena, info.spec.dim * ElementBytes(info.spec.element)) {
  CAIRN_CHECK(slot.value < slot_count);
}

Status SparseSlot::CheckKeys(std::span<const RowKey> keys) const {
  uint32_t wrong = 0;
  for (RowKey key : keys) wrong |= wire::SlotOfKey(key, slot_count_).value ^ slot_.value;
  if (wrong == 0) return Status::Ok();
  return {Code::kInvalidArgument, Where(name_, slot_) + ": a key that belongs to another slot"};
}

Status SparseSlot::CheckRead(std::span<const RowKey> keys, uint8_t column) const {
  if (column != 0)
    return {Code::kInvalidArgument, Where(name_, slot_) + ": a sparse table has column 0 alone, not " +
                                        std::to_string(column)};
  return CheckKeys(keys);
}

Status SparseSlot::CheckAssign(std::span<const std::byte>, Mask, uint8_t) const {
  return {Code::kInvalidArgument,
          Where(name_, slot_) + ": assign is for dense tables, and this one is sparse"};
}

Status SparseSlot::Check(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask) const {
  if (!mask.empty())
    return {Code::kInvalidArgument,
            Where(name_, slot_) + ": a push to a sparse table names keys, it has no mask of segments"};
  if (values.size() / rows_.row_bytes() != keys.size() || values.size() % rows_.row_bytes() != 0) {
    return {Code::kInvalidArgument, Where(name_, slot_) + " has dim " + std::to_string(dim_) + ": " +
                                        std::to_string(keys.size()) + " keys need " +
                                        std::to_string(ReadBytes(keys.size())) + " bytes of values, not " +
                                        std::to_string(values.size())};
  }
  if (Status status = CheckKeys(keys); !status.ok()) return status;
  if (check_finite_ &&
      !optimizer::AllFinite({reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)})) {
    return {Code::kNotFinite, Where(name_, slot_) + ": the push carries NaN or Inf"};
  }
  return Status::Ok();
}

uint32_t SparseSlot::CreateRow(RowKey key, uint64_t hash) {
  const uint32_t row = rows_.Add();
  index_.Insert(key, hash, row);
  initial_.FillRow(key, dim_, rows_.At(row));
  return row;
}

template <class Work>
void SparseSlot::UpdateRows(std::span<const RowKey> keys, Work work) {
  ForRows(
      index_, rows_, keys, [this](RowKey key, uint64_t hash) { return CreateRow(key, hash); },
      [&](size_t i, uint32_t row) { work(i, rows_.At(row)); });
}

void SparseSlot::Apply(std::span<const RowKey> keys, std::span<const std::byte> values, Mask,
                       const Hyper& hyper) {
  if (element_ == ElementType::kInt64) {
    const auto* g = reinterpret_cast<const uint64_t*>(values.data());
    if (optimizer_ == OptimizerKind::kFirst) {
      UpdateRows(keys, [&](size_t i, std::byte* row) {
        optimizer::First(reinterpret_cast<uint64_t*>(row), g + i * dim_, dim_);
      });
    } else {
      UpdateRows(keys, [&](size_t i, std::byte* row) {
        optimizer::Sum(reinterpret_cast<uint64_t*>(row), g + i * dim_, dim_);
      });
    }
    return;
  }
  const auto* g = reinterpret_cast<const float*>(values.data());
  UpdateFloats(keys, hyper, 1.0f, 1.0, [g](size_t i, size_t dim) { return g + i * dim; });
}

template <class GradientAt>
void SparseSlot::UpdateFloats(std::span<const RowKey> keys, const Hyper& hyper, float divisor, double scale,
                              GradientAt gradient) {
  const optimizer::SgdNumbers numbers(hyper);
  optimizer::WithGradient(optimizer::GradientOf(flags_, divisor, scale), [&](auto of) {
    WithDim(dim_, [&](auto dim) {
      if (optimizer_ == OptimizerKind::kSum) {
        UpdateRows(keys, [&](size_t i, std::byte* row) {
          optimizer::Sum(reinterpret_cast<float*>(row), gradient(i, dim), dim, of);
        });
      } else {
        UpdateRows(keys, [&](size_t i, std::byte* row) {
          optimizer::Sgd(reinterpret_cast<float*>(row), gradient(i, dim), dim, numbers, of);
        });
      }
    });
  });
}

void SparseSlot::Assign(std::span<const std::byte>, Mask, uint8_t) { CAIRN_CHECK(!"sparse"); }
void SparseSlot::AssignStaged(uint8_t, double) { CAIRN_CHECK(!"sparse"); }

void SparseSlot::Read(std::span<const RowKey> keys, uint8_t, std::byte* out) const {
  const auto missing = [](RowKey, uint64_t) { return LineIndex::kNoRow; };
  const auto read_all = [&](auto row_bytes) {
    ForRows(index_, rows_, keys, missing, [&](size_t i, uint32_t row) {
      if (__builtin_expect(row == LineIndex::kNoRow, 0)) {
        initial_.FillRow(keys[i], dim_, out + i * row_bytes);
      } else {
        std::memcpy(out + i * row_bytes, rows_.At(row), row_bytes);
      }
    });
  };
  if (rows_.row_bytes() == 64) {  // dim 16: four moves instead of a call
    read_all(std::integral_constant<size_t, 64>{});
  } else {
    read_all(rows_.row_bytes());
  }
}

void SparseSlot::Stage(std::span<const RowKey> keys, std::span<const std::byte> values, Mask,
                       double factor) {
  CAIRN_CHECK(optimizer_ != OptimizerKind::kFirst);  // async only
  if (staging_ == nullptr) {
    staging_ = std::make_unique<SparseStaging>(arena_, element_, dim_, Mix64(slot_.value, 0x57A6E));
  }
  staging_->Add(keys, values, static_cast<float>(factor));
  staged_ = true;
}

SlotTable::Report SparseSlot::ReportStaged(double divisor) const {
  Report report;
  const auto by = static_cast<float>(divisor);
  if (!staged_ || !(by > 0)) return report;
  for (size_t i = 0; i < staging_->keys().size(); ++i) {  // in the order in which keys first came
    if (element_ == ElementType::kFloat32) {
      const auto* sums = reinterpret_cast<const float*>(staging_->SumsOf(i));
      report.sum_squares = optimizer::AddSquares(report.sum_squares, {sums, dim_}, by);
      continue;
    }
    const auto* sums = reinterpret_cast<const int64_t*>(staging_->SumsOf(i));
    for (uint32_t c = 0; c < dim_; ++c) {
      const double mean = static_cast<double>(sums[c]) / divisor;
      report.sum_squares += mean * mean;
    }
  }
  report.finite = std::isfinite(report.sum_squares);
  return report;
}

void SparseSlot::ApplyStaged(const Hyper& hyper, double divisor, double scale) {
  if (!staged_) return;
  const std::span<const RowKey> keys = staging_->keys();
  const auto sums = [this](size_t i, size_t) { return reinterpret_cast<const float*>(staging_->SumsOf(i)); };
  if (element_ == ElementType::kInt64) {
    UpdateRows(keys, [&](size_t i, std::byte* row) {
      optimizer::Sum(reinterpret_cast<uint64_t*>(row), reinterpret_cast<const uint64_t*>(staging_->SumsOf(i)),
                     dim_);
    });
  } else if (optimizer_ == OptimizerKind::kSum) {
    UpdateFloats(keys, hyper, 1.0f, scale, sums);
  } else {
    CAIRN_CHECK(divisor > 0);
    const auto by = static_cast<float>(divisor);
    // Weights come from peers: a divisor that is no float counts as 0, and nothing is applied.
    if (by > 0) UpdateFloats(keys, hyper, by, scale, sums);
  }
  DropStaged();
}

void SparseSlot::DropStaged() {
  if (staging_ != nullptr) staging_->Clear();
  staged_ = false;
}

uint64_t SparseSlot::memory_bytes() const {
  return sizeof(*this) + index_.memory_bytes() + rows_.memory_bytes() +
         (staging_ == nullptr ? 0 : staging_->memory_bytes());
}

uint64_t SparseSlot::Hash() const {
  uint64_t sum = 0;  // addition, so that the order does not matter
  index_.ForEach([&](RowKey key, uint32_t row) {
    sum += XXH3_64bits_withSeed(rows_.At(row), rows_.row_bytes(), Mix64(key));
  });
  return sum;
}

void SparseSlot::ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const {
  index_.ForEach([&](RowKey key, uint32_t number) {
    row(key, std::span<const std::byte>(rows_.At(number), rows_.row_bytes()));
  });
}

}  // namespace cairn::table

// What changes a sparse slot: pushes, rounds and assigns, row by row.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "optimizer/kernels.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"
#include "table/row_pipeline.h"
#include "table/sparse_slot.h"

namespace cairn::table {

uint32_t SparseSlot::CreateRow(RowKey key, uint64_t hash) {
  const uint32_t row = rows_.Add();
  index_.Insert(key, hash, row);
  initial_.FillRow(key, dim_, rows_.At(row));
  layout_.FillState(rows_.At(row));
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
  step_ = std::max(step_, hyper.step);
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
  const optimizer::OfMean seen = optimizer::GradientOf(flags_, divisor, scale);
  if (layout_.columns() > 0) return UpdateWithState(keys, hyper, seen, gradient);
  const optimizer::SgdNumbers numbers(hyper);
  optimizer::WithGradient(seen, [&](auto of) {
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

template <class GradientAt>
void SparseSlot::UpdateWithState(std::span<const RowKey> keys, const Hyper& hyper,
                                 const optimizer::OfMean& seen, GradientAt gradient) {
  const optimizer::StepNumbers numbers(optimizer_, flags_, hyper, std::max<uint64_t>(hyper.step, 1));
  UpdateRows(keys, [&](size_t i, std::byte* row) {
    const RowLayout::State state = layout_.StateOf(row);
    optimizer::UpdateSpan(numbers, seen, {reinterpret_cast<float*>(row), dim_}, {gradient(i, dim_), dim_},
                          state.column);
  });
}

void SparseSlot::Assign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask, uint8_t) {
  const auto* given = reinterpret_cast<const float*>(values.data());
  UpdateRows(keys, [&](size_t i, std::byte* row) {
    optimizer::Replace(reinterpret_cast<float*>(row), given + i * dim_, dim_, optimizer::AsPushed{});
  });
}

void SparseSlot::AssignMissing(std::span<const RowKey> keys, std::span<const std::byte> values, Mask,
                               uint8_t) {
  const auto* given = reinterpret_cast<const float*>(values.data());
  const uint32_t first_new = rows_.RowOf(rows_.count());  // numbers rise with every row made
  ForRows(
      index_, rows_, keys, [this](RowKey key, uint64_t hash) { return CreateRow(key, hash); },
      [&](size_t i, uint32_t row) {
        if (row < first_new) return;
        optimizer::Replace(reinterpret_cast<float*>(rows_.At(row)), given + i * dim_, dim_,
                           optimizer::AsPushed{});
      });
}

void SparseSlot::AssignStaged(uint8_t, double) { CAIRN_CHECK(!"sparse"); }

SparseStaging& SparseSlot::Staging() {
  if (staging_ == nullptr) {
    staging_ = std::make_unique<SparseStaging>(arena_, element_, dim_, Mix64(slot_.value, 0x57A6E));
  }
  return *staging_;
}

void SparseSlot::Stage(std::span<const RowKey> keys, std::span<const std::byte> values, Mask,
                       double factor) {
  CAIRN_CHECK(optimizer_ != OptimizerKind::kFirst);  // async only
  Staging().Add(keys, values, static_cast<float>(factor));
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

}  // namespace cairn::table

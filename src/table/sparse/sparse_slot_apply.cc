// What changes a sparse slot: pushes, rounds and assigns, row by row.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "optimizer/narrow.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"
#include "table/sparse/row_pipeline.h"
#include "table/sparse/sparse_slot.h"
#include "table/step_number.h"

namespace cairn::table {

uint32_t SparseSlot::CreateRow(RowKey key, uint64_t hash) {
  const uint32_t row = rows_.Add();
  index_.Insert(key, hash, row);
  std::byte* const at = rows_.At(row);
  if (narrow()) {
    initial_.FillRow(key, dim_, reinterpret_cast<std::byte*>(wide_.data()));
    PutValues(at, wide_.data());
  } else {
    initial_.FillRow(key, dim_, at);
  }
  layout_.FillState(at);
  return row;
}

void SparseSlot::PutValues(std::byte* row, const float* values) {
  if (!narrow()) return optimizer::ReplaceSpan({reinterpret_cast<float*>(row), dim_}, {values, dim_}, {});
  auto* const stored = reinterpret_cast<uint16_t*>(row);
  optimizer::NarrowSpan(storage_, {values, dim_}, {stored, dim_});
  if (dim_ % 2 != 0) stored[dim_] = 0;  // equal content, equal bytes
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
    const auto work = optimizer_ == OptimizerKind::kFirst ? optimizer::FirstSpan : optimizer::SumSpan;
    UpdateRows(keys, [&](size_t i, std::byte* row) {
      work({reinterpret_cast<uint64_t*>(row), dim_}, {g + i * dim_, dim_});
    });
    return;
  }
  const auto* g = reinterpret_cast<const float*>(values.data());
  UpdateFloats(keys, Keys::kOfAPush, hyper, optimizer::GradientOf(flags_, 1.0f, 1.0),
               [this, g](size_t i) { return g + i * dim_; });
}

template <class GradientAt>
void SparseSlot::UpdateFloats(std::span<const RowKey> keys, Keys kind, const Hyper& hyper,
                              const optimizer::OfMean& of, GradientAt gradient) {
  const optimizer::StepNumbers numbers(optimizer_, flags_, hyper, std::max<uint64_t>(hyper.step, 1));
  if (narrow()) {
    const optimizer::NarrowRowStep step(numbers, of, dim_, storage_);
    return UpdateNarrow(keys, kind, step, gradient);
  }
  const optimizer::RowStep step(numbers, of, dim_);
  ForRowGroups(
      index_, rows_, keys, [this](RowKey key, uint64_t hash) { return CreateRow(key, hash); },
      [&](size_t first, std::span<const uint32_t> group) {
        float* rows[kGroup];
        const float* gradients[kGroup];
        for (size_t i = 0; i < group.size(); ++i) {
          rows[i] = reinterpret_cast<float*>(rows_.At(group[i]));
          gradients[i] = gradient(first + i);
        }
        step(rows, gradients, group.size());
      });
}

template <class GradientAt>
void SparseSlot::UpdateNarrow(std::span<const RowKey> keys, Keys kind, const optimizer::NarrowRowStep& step,
                              GradientAt gradient) {
  if (keys.empty()) return;
  const uint64_t operation = Mix64(rounding_seed_, operations_++);
  ForRowGroups(
      index_, rows_, keys, [this](RowKey key, uint64_t hash) { return CreateRow(key, hash); },
      [&](size_t first, std::span<const uint32_t> group) {
        uint16_t* rows[kGroup];
        uint64_t seeds[kGroup];
        const float* gradients[kGroup];
        for (size_t i = 0; i < group.size(); ++i) {
          rows[i] = reinterpret_cast<uint16_t*>(rows_.At(group[i]));
          // A key may come twice in a push. A round's result must not depend on who came first.
          const uint64_t place = kind == Keys::kOfARound ? 0 : first + i;
          seeds[i] = Mix64(Mix64(operation, place), keys[first + i]);
          gradients[i] = gradient(first + i);
        }
        step(rows, seeds, gradients, group.size());
      });
}

void SparseSlot::Assign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask, uint8_t column) {
  const auto* given = reinterpret_cast<const float*>(values.data());
  if (column == kStepColumn) {
    if (!keys.empty()) step_ = StepsFrom(given[(keys.size() - 1) * dim_]);
    return;
  }
  UpdateRows(keys, [&](size_t i, std::byte* row) { Put(row, column, given + i * dim_); });
}

void SparseSlot::Put(std::byte* row, uint8_t column, const float* given) {
  if (column == 0) return PutValues(row, given);
  layout_.PutState(row, column, given);
}

void SparseSlot::AssignMissing(std::span<const RowKey> keys, std::span<const std::byte> values, Mask,
                               uint8_t column) {
  if (column == kStepColumn) {
    if (step_ == 0) Assign(keys, values, {}, column);
    return;
  }
  const auto* given = reinterpret_cast<const float*>(values.data());
  const uint32_t first_new = rows_.RowOf(rows_.count());  // numbers rise with every row made
  ForRows(
      index_, rows_, keys, [this](RowKey key, uint64_t hash) { return CreateRow(key, hash); },
      [&](size_t i, uint32_t row) {
        if (row >= first_new) Put(rows_.At(row), column, given + i * dim_);
      });
}

void SparseSlot::AssignStaged(uint8_t, double) { CAIRN_CHECK(!"sparse"); }

SparseStaging& SparseSlot::Staging() {
  if (staging_ == nullptr) {
    staging_ = std::make_unique<SparseStaging>(arena_, element_, dim_, Mix64(slot_.value, 0x57A6E));
  }
  return *staging_;
}

void SparseSlot::Stage(std::span<const RowKey> keys, std::span<const std::byte> values, Mask, double factor) {
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
  const auto sums = [this](size_t i) { return reinterpret_cast<const float*>(staging_->SumsOf(i)); };
  if (element_ == ElementType::kInt64) {
    UpdateRows(keys, [&](size_t i, std::byte* row) {
      const auto* sum = reinterpret_cast<const uint64_t*>(staging_->SumsOf(i));
      optimizer::SumSpan({reinterpret_cast<uint64_t*>(row), dim_}, {sum, dim_});
    });
  } else if (optimizer_ == OptimizerKind::kSum) {
    UpdateFloats(keys, Keys::kOfARound, hyper, optimizer::GradientOf(flags_, 1.0f, scale), sums);
  } else {
    CAIRN_CHECK(divisor > 0);
    const auto by = static_cast<float>(divisor);
    // Weights come from peers: a divisor that is no float counts as 0, and nothing is applied.
    if (by > 0)
      UpdateFloats(keys, Keys::kOfARound, hyper, optimizer::GradientOf(flags_, by, scale), sums);
  }
  DropStaged();
}

void SparseSlot::DropStaged() {
  if (staging_ != nullptr) staging_->Clear();
  staged_ = false;
}

}  // namespace cairn::table

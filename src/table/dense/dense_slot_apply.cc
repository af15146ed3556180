// What changes a dense slot: pushes, rounds and assigns, piece by piece.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"
#include "table/dense/dense_slot.h"
#include "table/step_number.h"

namespace cairn::table {

template <class Wanted>
void DenseSlot::StepIntegers(const std::byte* values, Wanted wanted) {
  for (Piece& piece : pieces_) {
    if (!wanted(piece)) continue;
    ++piece.steps;
    const auto w = Part<uint64_t>(values_, piece);
    if (optimizer_ == OptimizerKind::kFirst) {
      optimizer::FirstSpan(w, Part<uint64_t>(values, piece));
    } else {
      optimizer::SumSpan(w, Part<uint64_t>(values, piece));
    }
  }
}

template <class Wanted>
void DenseSlot::Step(const std::byte* gradient, const Hyper& hyper, float divisor, double scale,
                     Wanted wanted) {
  const optimizer::OfMean seen = optimizer::GradientOf(flags_, divisor, scale);
  std::optional<optimizer::StepNumbers> numbers;  // of the last piece: most have made equal steps
  for (Piece& piece : pieces_) {
    if (!wanted(piece)) continue;
    if (state_->columns() > 0) state_->Make();
    ++piece.steps;
    if (!numbers || numbers->step != piece.steps) numbers.emplace(optimizer_, flags_, hyper, piece.steps);
    float* state[optimizer::kMaxStateColumns] = {};
    for (uint32_t c = 0; c < state_->columns(); ++c) state[c] = state_->arrays()[c] + piece.begin;
    optimizer::UpdateSpan(*numbers, seen, Part<float>(values_, piece), Part<float>(gradient, piece), state);
  }
}

template <class Wanted>
void DenseSlot::Replace(const std::byte* values, uint8_t column, float divisor, Wanted wanted) {
  if (column == 0) assigned_ = true;
  if (bytes_ == 0) return;
  if (column != 0 && column != kStepColumn) state_->Make();
  for (Piece& piece : pieces_) {
    if (!wanted(piece)) continue;
    const auto given = Part<float>(values, piece);
    if (column == kStepColumn) {
      piece.steps = StepsFrom(given[0] / divisor);
      continue;
    }
    auto* array = column == 0 ? values_ : reinterpret_cast<std::byte*>(state_->array(column));
    optimizer::ReplaceSpan(Part<float>(array, piece), given, {divisor, 1.0f});
  }
}

void DenseSlot::Apply(std::span<const RowKey>, std::span<const std::byte> values, Mask mask,
                      const Hyper& hyper) {
  CAIRN_CHECK(optimizer_ != OptimizerKind::kMean);  // sync only
  const auto wanted = [mask](const Piece& piece) { return InMask(mask, piece.segment); };
  if (element_ == ElementType::kInt64) {
    StepIntegers(values.data(), wanted);
  } else {
    Step(values.data(), hyper, 1.0f, 1.0, wanted);
  }
}

void DenseSlot::Assign(std::span<const RowKey>, std::span<const std::byte> values, Mask mask,
                       uint8_t column) {
  CAIRN_CHECK(element_ == ElementType::kFloat32);
  Replace(values.data(), column, 1.0f, [mask](const Piece& piece) { return InMask(mask, piece.segment); });
}

void DenseSlot::AssignMissing(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                              uint8_t column) {
  if (!assigned()) Assign(keys, values, mask, column);
}

void DenseSlot::Stage(std::span<const RowKey>, std::span<const std::byte> values, Mask mask, double factor) {
  CAIRN_CHECK(optimizer_ != OptimizerKind::kFirst);  // async only
  staged_ = true;
  if (bytes_ == 0) return;
  TakeStaging();
  const auto by = static_cast<float>(factor);
  for (Piece& piece : pieces_) {
    if (!InMask(mask, piece.segment)) continue;
    const bool first = !std::exchange(piece.staged, true);
    if (element_ == ElementType::kInt64) {
      const auto sum = Part<uint64_t>(staging(), piece);
      const auto given = Part<uint64_t>(values.data(), piece);
      if (first) {
        std::memcpy(sum.data(), given.data(), sum.size_bytes());
      } else {
        optimizer::SumSpan(sum, given);
      }
    } else if (first) {
      optimizer::StageCopySpan(Part<float>(staging(), piece), Part<float>(values.data(), piece), by);
    } else {
      optimizer::StageAddSpan(Part<float>(staging(), piece), Part<float>(values.data(), piece), by);
    }
  }
}

SlotTable::Report DenseSlot::ReportStaged(double divisor) const {
  Report report;
  const auto by = static_cast<float>(divisor);
  if (!staged_ || !(by > 0)) return report;
  for (const Piece& piece : pieces_) {
    if (!piece.staged) continue;
    if (element_ == ElementType::kFloat32) {
      report.sum_squares = optimizer::AddSquares(report.sum_squares, Part<float>(staging(), piece), by);
      continue;
    }
    for (const int64_t sum : Part<int64_t>(staging(), piece)) {
      const double mean = static_cast<double>(sum) / divisor;
      report.sum_squares += mean * mean;
    }
  }
  report.finite = std::isfinite(report.sum_squares);
  return report;
}

void DenseSlot::CountRound(const Hyper&) {}  // its pieces count for themselves

void DenseSlot::ApplyStaged(const Hyper& hyper, double divisor, double scale) {
  CAIRN_CHECK(divisor > 0 || optimizer_ == OptimizerKind::kSum);
  const auto wanted = [](const Piece& piece) { return piece.staged; };
  if (bytes_ > 0 && staged_ && staging_piece_ != nullptr) {
    if (element_ == ElementType::kInt64) {
      StepIntegers(staging(), wanted);
    } else if (optimizer_ == OptimizerKind::kSum) {
      Step(staging(), hyper, 1.0f, scale, wanted);
    } else if (const auto by = static_cast<float>(divisor); by > 0) {
      // Weights come from peers: a divisor that is no float counts as 0, and nothing is applied.
      Step(staging(), hyper, by, scale, wanted);
    }
  }
  DropStaged();
}

void DenseSlot::AssignStaged(uint8_t column, double divisor) {
  CAIRN_CHECK(element_ == ElementType::kFloat32 && divisor > 0);
  const auto by = static_cast<float>(divisor);
  if (staged_ && by > 0) {
    const std::byte* sums = bytes_ == 0 ? nullptr : staging();
    Replace(sums, column, by, [](const Piece& piece) { return piece.staged; });
  }
  DropStaged();
}

void DenseSlot::DropStaged() {
  for (Piece& piece : pieces_) piece.staged = false;
  staged_ = false;
}

}  // namespace cairn::table

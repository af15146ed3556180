#include "naive_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "naive_half.h"
#include "optimizer/narrow.h"
#include "table/initial_value.h"

namespace cairn::sim {

namespace {

template <class T>
T At(const std::byte* values, size_t i) {
  T value;
  std::memcpy(&value, values + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void Store(std::byte* values, size_t i, T value) {
  std::memcpy(values + i * sizeof(T), &value, sizeof(T));
}
float OneNan(float value) { return value == value ? value : std::bit_cast<float>(uint32_t{0x7FC00000}); }
float AsFloat(double value) { return static_cast<float>(value); }

}  // namespace

NaiveTable::NaiveTable(const wire::TableInfo& info, SlotId slot, uint32_t slot_count) : info_(info) {
  element_bytes_ = info.spec.element == ElementType::kInt64 ? 8 : 4;
  row_bytes_ = info.spec.dim * element_bytes_;
  if (info.spec.kind == TableKind::kSparse) {
    state_columns_ = StateColumns(info.spec.optimizer, info.spec.optimizer_flags);
    const bool one_a_row = info.spec.optimizer == OptimizerKind::kRowwiseAdagrad;
    state_width_ = state_columns_ == 0 ? 0 : one_a_row ? 1 : info.spec.dim;
    return;
  }
  runs_ = RunsBySlot(wire::DenseLayout::Of(info.id, info.spec.size, slot_count))[slot.value];
  for (const wire::DenseRun& run : runs_) {
    for (uint64_t element = run.begin; element < run.begin + run.count; ++element) {
      uint32_t segment = 0;
      while (segment < info.spec.segments.size() && info.spec.segments[segment] <= element) ++segment;
      segment_of_.push_back(segment);
    }
  }
  row_bytes_ = segment_of_.size() * element_bytes_;
  momentum_.resize(segment_of_.size());
  assigned_ = segment_of_.empty();
  Find(0);
}

NaiveTable::Row NaiveTable::Initial(RowKey key) const {
  Row row(row_bytes_);
  const table::InitialValue initial(info_.spec.init, info_.id, info_.spec.element);
  if (info_.spec.kind == TableKind::kSparse) {
    initial.FillRow(key, info_.spec.dim, row.data());
    if (info_.spec.storage != Storage::kFull)
      optimizer::RoundSpan(info_.spec.storage, {reinterpret_cast<float*>(row.data()), info_.spec.dim});
    const Row state = InitialState();
    row.insert(row.end(), state.begin(), state.end());
    return row;
  }
  std::byte* out = row.data();
  for (const wire::DenseRun& run : runs_) {
    initial.FillElements(run.begin, run.count, out);
    out += run.count * element_bytes_;
  }
  return row;
}

NaiveTable::Row& NaiveTable::Find(RowKey key) {
  auto it = rows_.find(key);
  return it != rows_.end() ? it->second : rows_.emplace(key, Initial(key)).first->second;
}

NaiveTable::Row NaiveTable::Read(RowKey key, uint8_t column) const {
  if (info_.spec.kind == TableKind::kSparse) return ReadRow(key, column);
  if (column != 0) {
    Row row(row_bytes_);
    for (size_t i = 0; i < segment_of_.size(); ++i) {
      const auto steps = steps_.find(segment_of_[i]);
      const uint64_t made = steps == steps_.end() ? 0 : steps->second;
      Store(row.data(), i, column == kStepColumn ? static_cast<float>(made) : momentum_[i]);
    }
    return row;
  }
  auto it = rows_.find(key);
  return it != rows_.end() ? it->second : Initial(key);
}

NaiveTable::Row NaiveTable::Answer(RowKey key, uint8_t column) const {
  Row row = Read(key, column);
  if (column != 0 || info_.spec.element != ElementType::kFloat32) return row;
  for (size_t i = 0; i < row.size() / sizeof(float); ++i)
    Store(row.data(), i, NaiveHalf(info_.spec.wire, At<float>(row.data(), i), true));
  return row;
}

std::vector<bool> NaiveTable::Named(std::span<const std::byte> mask) const {
  std::vector<bool> named(row_bytes_ / element_bytes_, true);
  if (mask.empty()) return named;
  for (size_t i = 0; i < named.size(); ++i) {
    const uint32_t segment = segment_of_[i];
    named[i] =
        segment / 8 < mask.size() && (static_cast<unsigned>(mask[segment / 8]) >> (segment % 8) & 1) != 0;
  }
  return named;
}

void NaiveTable::CountSteps(const std::vector<bool>& named) {
  std::map<uint32_t, bool> stepped;
  for (size_t i = 0; i < segment_of_.size(); ++i) {
    if (named[i] && !std::exchange(stepped[segment_of_[i]], true)) ++steps_[segment_of_[i]];
  }
}

float NaiveTable::StepOne(size_t i, float w, float g, const Hyper& hyper) {
  if (info_.spec.optimizer == OptimizerKind::kSum) return OneNan(w + g);
  if ((info_.spec.optimizer_flags & kMaximize) != 0) g = -g;
  if (hyper.weight_decay != 0) {
    const float decay = AsFloat(hyper.weight_decay) * w;
    g = g + decay;
  }
  if ((info_.spec.optimizer_flags & kWithMomentum) != 0 && hyper.beta1 != 0) {
    const bool first = steps_[segment_of_[i]] == 1;
    const float old = momentum_[i] * AsFloat(hyper.beta1);
    const float added = AsFloat(1 - hyper.dampening) * g;
    momentum_[i] = first ? g : old + added;
    g = momentum_[i];
    momentum_[i] = OneNan(momentum_[i]);
  }
  const float change = AsFloat(hyper.lr) * g;
  return OneNan(w - change);
}

void NaiveTable::Step(Row& row, const Sum& sum, const Hyper& hyper, float divisor, float scale) {
  if (has_row_state()) {
    std::vector<float> gradients;
    for (size_t i = 0; i < sum.has.size(); ++i)
      gradients.push_back(At<float>(sum.sum.data(), i) / divisor * scale);
    return StepRow(row, gradients, hyper);
  }
  CountSteps(sum.has);
  const bool means = info_.spec.optimizer != OptimizerKind::kSum;
  for (size_t i = 0; i < sum.has.size(); ++i) {
    if (!sum.has[i]) continue;
    if (info_.spec.element == ElementType::kInt64) {
      Store(row.data(), i, At<uint64_t>(row.data(), i) + At<uint64_t>(sum.sum.data(), i));
      continue;
    }
    const float given = At<float>(sum.sum.data(), i);
    const float mean = means ? given / divisor : given;
    Store(row.data(), i, StepOne(i, At<float>(row.data(), i), mean * scale, hyper));
  }
}

void NaiveTable::Put(const Sum& sum, uint8_t column, float divisor) {
  if (column == 0) assigned_ = true;
  std::map<uint32_t, bool> counted;
  for (size_t i = 0; i < sum.has.size(); ++i) {
    if (!sum.has[i]) continue;
    const float value = At<float>(sum.sum.data(), i) / divisor;
    if (column == 0) {
      Store(Find(0).data(), i, OneNan(value));
    } else if (column != kStepColumn) {
      momentum_[i] = OneNan(value);
    } else if (!std::exchange(counted[segment_of_[i]], true)) {
      // The first element of the segment here speaks for all of it.
      steps_[segment_of_[i]] = value > 0 ? static_cast<uint64_t>(std::nearbyint(value)) : 0;
    }
  }
}

void NaiveTable::Apply(std::span<const RowKey> keys, std::span<const std::byte> values,
                       std::span<const std::byte> mask, const Hyper& hyper) {
  step_ = std::max(step_, hyper.step);
  const size_t count = info_.spec.kind == TableKind::kDense ? 1 : keys.size();
  for (size_t i = 0; i < count; ++i) {
    const auto part = values.subspan(i * row_bytes_, row_bytes_);
    const RowKey key = info_.spec.kind == TableKind::kDense ? 0 : keys[i];
    Step(Find(key), {Row(part.begin(), part.end()), Named(mask)}, hyper, 1, 1);
    RoundRow(Find(key), key, i);
  }
  if (count > 0) ++operations_;
}

void NaiveTable::Assign(std::span<const std::byte> values, std::span<const std::byte> mask, uint8_t column) {
  Put({Row(values.begin(), values.end()), Named(mask)}, column, 1);
}

std::map<RowKey, NaiveTable::Sum> NaiveTable::SumUp(
    const std::vector<NaiveContribution>& contributions) const {
  std::map<RowKey, Sum> sums;
  for (const NaiveContribution& c : contributions) {
    const bool weighs = info_.spec.optimizer != OptimizerKind::kSum || c.op != PushOp::kUpdate;
    const float factor = AsFloat(weighs ? c.weight * c.value_scale : c.value_scale);
    const std::vector<bool> named = Named(c.mask);
    const size_t count = info_.spec.kind == TableKind::kDense ? 1 : c.keys.size();
    for (size_t r = 0; r < count; ++r) {
      Sum& sum = sums[info_.spec.kind == TableKind::kDense ? 0 : c.keys[r]];
      sum.sum.resize(row_bytes_);
      sum.has.resize(named.size());
      const std::byte* values = c.values.data() + r * row_bytes_;
      for (size_t i = 0; i < named.size(); ++i) {
        if (!named[i]) continue;
        const bool first = !sum.has[i];
        sum.has[i] = true;
        if (info_.spec.element == ElementType::kInt64) {
          const auto before = first ? 0 : At<uint64_t>(sum.sum.data(), i);
          Store(sum.sum.data(), i, before + At<uint64_t>(values, i));
          continue;
        }
        const float given = factor == 1.0f ? At<float>(values, i) : factor * At<float>(values, i);
        Store(sum.sum.data(), i, first ? given : OneNan(At<float>(sum.sum.data(), i) + given));
      }
    }
  }
  return sums;
}

void NaiveTable::ApplyRound(const std::vector<NaiveContribution>& contributions, const Hyper& hyper,
                            double divisor, double scale) {
  const std::map<RowKey, Sum> sums = SumUp(contributions);
  for (const auto& [key, sum] : sums) {
    Step(Find(key), sum, hyper, AsFloat(divisor), AsFloat(scale));
    RoundRow(Find(key), key, 0);
  }
  if (!sums.empty()) ++operations_;
}

void NaiveTable::AssignRound(const std::vector<NaiveContribution>& contributions, uint8_t column,
                             double divisor) {
  for (const auto& [key, sum] : SumUp(contributions)) Put(sum, column, AsFloat(divisor));
}

double NaiveTable::SumSquares(const std::vector<NaiveContribution>& contributions, double divisor) const {
  double squares = 0;
  const double by = info_.spec.optimizer == OptimizerKind::kSum ? 1 : divisor;
  for (const auto& [key, sum] : SumUp(contributions)) {
    for (size_t i = 0; i < sum.has.size(); ++i) {
      if (!sum.has[i]) continue;
      const double given = info_.spec.element == ElementType::kInt64
                               ? static_cast<double>(At<int64_t>(sum.sum.data(), i))
                               : static_cast<double>(At<float>(sum.sum.data(), i));
      const double mean = given / by;
      squares += mean * mean;
    }
  }
  return squares;
}

}  // namespace cairn::sim

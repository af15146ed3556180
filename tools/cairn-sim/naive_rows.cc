// Rows of the naive table with an optimizer's state, by the optimizers' own slow reference, and rows
// that are assigned.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "base/random.h"
#include "naive_table.h"
#include "optimizer/narrow.h"
#include "optimizer/update_reference.h"

namespace cairn::sim {

namespace {

std::vector<float> Floats(std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
std::vector<std::byte> Bytes(const std::vector<float>& numbers) {
  std::vector<std::byte> out(numbers.size() * sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

}  // namespace

NaiveTable::Row NaiveTable::InitialState() const {
  std::vector<float> state(state_columns_ * state_width_, info_.spec.initial_state);
  // FTRL's first column is z.
  if (info_.spec.optimizer == OptimizerKind::kFtrl) std::fill_n(state.begin(), state_width_, 0.0f);
  return Bytes(state);
}

void NaiveTable::StepRow(Row& row, const std::vector<float>& gradients, const Hyper& hyper) const {
  std::vector<float> numbers = Floats(row);  // the values, then column after column
  const size_t dim = info_.spec.dim;
  const uint32_t flags = info_.spec.optimizer_flags;
  if (info_.spec.optimizer == OptimizerKind::kRowwiseAdagrad) {
    std::vector<float> values(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(dim));
    optimizer::ReferenceRowwiseAdagrad(flags, hyper, gradients, values, numbers[dim]);
    std::copy(values.begin(), values.end(), numbers.begin());
  } else {
    for (size_t i = 0; i < dim; ++i) {
      optimizer::ReferenceElement element{.w = numbers[i]};
      for (uint32_t c = 0; c < state_columns_; ++c) element.state[c] = numbers[(c + 1) * dim + i];
      optimizer::ReferenceUpdate(info_.spec.optimizer, flags, hyper, std::max<uint64_t>(1, hyper.step),
                                 gradients[i], element);
      numbers[i] = element.w;
      for (uint32_t c = 0; c < state_columns_; ++c) numbers[(c + 1) * dim + i] = element.state[c];
    }
  }
  row = Bytes(numbers);
}

NaiveTable::Row NaiveTable::ReadRow(RowKey key, uint8_t column) const {
  auto it = rows_.find(key);
  const Row row = it != rows_.end() ? it->second : Initial(key);
  if (column == 0) return Row(row.begin(), row.begin() + static_cast<ptrdiff_t>(row_bytes_));
  const size_t dim = info_.spec.dim;
  if (column == kStepColumn) return Bytes(std::vector<float>(dim, static_cast<float>(step_)));
  const std::vector<float> numbers = Floats(row);
  std::vector<float> out;
  for (size_t i = 0; i < dim; ++i)
    out.push_back(numbers[dim + (column - 1) * state_width_ + (state_width_ == 1 ? 0 : i)]);
  return Bytes(out);
}

void NaiveTable::AssignRows(std::span<const RowKey> keys, std::span<const std::byte> values, uint8_t column,
                            bool once) {
  if (column == kStepColumn) {
    if (keys.empty() || (once && step_ != 0)) return;
    const float last = Floats(values)[(keys.size() - 1) * info_.spec.dim];
    step_ = last > 0 ? static_cast<uint64_t>(std::nearbyint(last)) : 0;
    return;
  }
  std::set<RowKey> spared;
  for (RowKey key : keys)
    if (once && rows_.contains(key)) spared.insert(key);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (spared.contains(keys[i])) continue;
    std::vector<float> row = Floats(values.subspan(i * row_bytes_, row_bytes_));
    for (float& x : row) x = optimizer::ReferenceCanonical(x);
    if (column != 0) {
      std::vector<float> numbers = Floats(Find(keys[i]));  // the values, then column after column
      std::copy_n(row.begin(), state_width_,
                  numbers.begin() + static_cast<ptrdiff_t>(info_.spec.dim + (column - 1) * state_width_));
      Find(keys[i]) = Bytes(numbers);
      continue;
    }
    if (info_.spec.storage != Storage::kFull) optimizer::RoundSpan(info_.spec.storage, row);
    const std::vector<std::byte> bytes = Bytes(row);
    std::copy(bytes.begin(), bytes.end(), Find(keys[i]).begin());
  }
}

void NaiveTable::RoundRow(Row& row, RowKey key, uint64_t place) const {
  const TableSpec& spec = info_.spec;
  if (spec.storage == Storage::kFull) return;
  const uint64_t table = Mix64(spec.init.seed, spec.init.stream == 0 ? info_.id.value : spec.init.stream);
  const uint64_t operation = Mix64(Mix64(table, 0x0FF5E7), operations_);
  const uint64_t seed = Mix64(Mix64(operation, place), key);
  std::vector<float> numbers = Floats(row);
  for (uint32_t c = 0; c < spec.dim; ++c) {
    const uint32_t random = optimizer::RoundingBits(seed, c);
    const uint16_t stored = optimizer::NarrowedAtRandom(spec.storage, numbers[c], random);
    numbers[c] = optimizer::Widened(spec.storage, stored);
  }
  row = Bytes(numbers);
}

void NaiveTable::CountRound(const Hyper& hyper) {
  if (hyper.step != 0) step_ = hyper.step;
}

}  // namespace cairn::sim

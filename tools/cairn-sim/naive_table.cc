#include "naive_table.h"

#include <bit>
#include <cstring>

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
void Put(std::byte* values, size_t i, T value) {
  std::memcpy(values + i * sizeof(T), &value, sizeof(T));
}
float OneNan(float value) { return value == value ? value : std::bit_cast<float>(uint32_t{0x7FC00000}); }

}  // namespace

NaiveTable::NaiveTable(const wire::TableInfo& info, SlotId slot, uint32_t slot_count) : info_(info) {
  element_bytes_ = info.spec.element == ElementType::kInt64 ? 8 : 4;
  row_bytes_ = info.spec.dim * element_bytes_;
  if (info.spec.kind == TableKind::kSparse) return;
  runs_ = RunsBySlot(wire::DenseLayout::Of(info.id, info.spec.size, slot_count))[slot.value];
  row_bytes_ = 0;
  for (const wire::DenseRun& run : runs_) row_bytes_ += run.count * element_bytes_;
  Find(0);
}

NaiveTable::Row NaiveTable::Initial(RowKey key) const {
  Row row(row_bytes_);
  const table::InitialValue initial(info_.spec.init, info_.id, info_.spec.element);
  if (info_.spec.kind == TableKind::kSparse) {
    initial.FillRow(key, info_.spec.dim, row.data());
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

NaiveTable::Row NaiveTable::Read(RowKey key) const {
  auto it = rows_.find(key);
  return it != rows_.end() ? it->second : Initial(key);
}

void NaiveTable::Add(Row& row, const std::byte* values) const {
  for (size_t i = 0; i < row.size() / element_bytes_; ++i) {
    if (info_.spec.element == ElementType::kInt64) {
      Put(row.data(), i, At<uint64_t>(row.data(), i) + At<uint64_t>(values, i));
    } else {
      Put(row.data(), i, OneNan(At<float>(row.data(), i) + At<float>(values, i)));
    }
  }
}

void NaiveTable::Step(Row& row, const std::byte* values, const Hyper& hyper, float divisor, bool mean) const {
  if (info_.spec.optimizer == OptimizerKind::kSum || info_.spec.element == ElementType::kInt64) {
    return Add(row, values);
  }
  for (size_t i = 0; i < row.size() / 4; ++i) {
    const float w = At<float>(row.data(), i);
    const float g = mean ? At<float>(values, i) / divisor : At<float>(values, i);
    const float step = hyper.lr * (g + hyper.weight_decay * w);
    Put(row.data(), i, OneNan(w - step));
  }
}

void NaiveTable::Apply(std::span<const RowKey> keys, std::span<const std::byte> values, const Hyper& hyper) {
  if (info_.spec.kind == TableKind::kDense) return Step(Find(0), values.data(), hyper, 1, false);
  for (size_t i = 0; i < keys.size(); ++i)
    Step(Find(keys[i]), values.data() + i * row_bytes_, hyper, 1, false);
}

void NaiveTable::ApplyRound(const std::vector<NaiveContribution>& contributions, const Hyper& hyper,
                            double divisor) {
  std::map<RowKey, Row> sums;
  const bool weighs =
      info_.spec.optimizer != OptimizerKind::kSum && info_.spec.element == ElementType::kFloat32;
  for (const NaiveContribution& c : contributions) {
    const size_t count = info_.spec.kind == TableKind::kDense ? 1 : c.keys.size();
    for (size_t i = 0; i < count; ++i) {
      Row weighted(c.values.begin() + static_cast<ptrdiff_t>(i * row_bytes_),
                   c.values.begin() + static_cast<ptrdiff_t>((i + 1) * row_bytes_));
      if (const auto weight = static_cast<float>(c.weight); weighs && weight != 1.0f) {
        for (size_t j = 0; j < weighted.size() / 4; ++j) {
          Put(weighted.data(), j, weight * At<float>(weighted.data(), j));
        }
      }
      const RowKey key = info_.spec.kind == TableKind::kDense ? 0 : c.keys[i];
      auto [it, first] = sums.try_emplace(key, weighted);
      if (!first) Add(it->second, weighted.data());
    }
  }
  for (const auto& [key, sum] : sums) Step(Find(key), sum.data(), hyper, static_cast<float>(divisor), true);
}

}  // namespace cairn::sim

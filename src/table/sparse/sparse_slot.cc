#include "table/sparse/sparse_slot.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/random.h"
#include "optimizer/narrow.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"
#include "table/sparse/row_copy.h"
#include "table/sparse/row_pipeline.h"
#include "table/step_number.h"

namespace cairn::table {
namespace {
std::span<const float> Floats(std::span<const std::byte> values) {
  return {reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)};
}
}  // namespace

SparseSlot::SparseSlot(const wire::TableInfo& info, SlotId slot, uint32_t slot_count, Arena& arena)
    : name_(info.spec.name),
      element_(info.spec.element),
      optimizer_(info.spec.optimizer),
      flags_(info.spec.optimizer_flags),
      storage_(info.spec.storage),
      check_finite_(element_ == ElementType::kFloat32 && info.spec.non_finite == NonFinitePolicy::kReject),
      dim_(info.spec.dim),
      slot_(slot),
      slot_count_(slot_count),
      initial_(info.spec.init, info.id, info.spec.element),
      layout_(info.spec),
      arena_(arena),
      index_(arena, Mix64(info.id.value, slot.value)),
      rows_(arena, layout_.row_bytes()),
      rounding_seed_(Mix64(
          Mix64(info.spec.init.seed, info.spec.init.stream == 0 ? info.id.value : info.spec.init.stream),
          0x0FF5E7)),
      wide_(narrow() ? info.spec.dim : 0) {
  CAIRN_CHECK(slot.value < slot_count);
}

std::string SparseSlot::Where() const {
  return "table \"" + name_ + "\", slot " + std::to_string(slot_.value);
}

Status SparseSlot::CheckKeys(std::span<const RowKey> keys) const {
  uint32_t wrong = 0;
  for (RowKey key : keys) wrong |= wire::SlotOfKey(key, slot_count_).value ^ slot_.value;
  if (wrong == 0) return Status::Ok();
  return {Code::kInvalidArgument, Where() + ": a key that belongs to another slot"};
}

Status SparseSlot::CheckRead(std::span<const RowKey> keys, uint8_t column) const {
  if (column == kKeyColumn) {
    if (keys.empty()) return Status::Ok();
    return {Code::kInvalidArgument, Where() + ": who asks for its keys names none"};
  }
  if (Status status = CheckColumn(column); !status.ok()) return status;
  return CheckKeys(keys);
}

Status SparseSlot::CheckColumn(uint8_t column) const {
  const bool exists = column == 0 || (element_ == ElementType::kFloat32 &&
                                      (column <= layout_.columns() || column == kStepColumn));
  if (exists) return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + name_ + "\" has no column " + std::to_string(column) +
                                      ": its optimizer keeps " + std::to_string(layout_.columns()) +
                                      " state arrays"};
}

Status SparseSlot::CheckAssign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                               uint8_t column) const {
  if (element_ != ElementType::kFloat32)
    return {Code::kInvalidArgument, "table \"" + name_ + "\" is of int64: assign is for tables of float32"};
  if (Status status = CheckColumn(column); !status.ok()) return status;
  if (Status status = Check(keys, values, mask); !status.ok()) return status;
  if (column != 0 || storage_ != Storage::kFloat16) return Status::Ok();
  const float largest = optimizer::LargestOf(storage_);
  for (const float value : Floats(values)) {
    if (std::isfinite(value) && std::abs(value) > largest)
      return {Code::kInvalidArgument, "table \"" + name_ + "\" stores float16, and " + std::to_string(value) +
                                          " is beyond its largest number, 65504: use bfloat16 or float32"};
  }
  return Status::Ok();
}

Status SparseSlot::Check(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask) const {
  if (!mask.empty())
    return {Code::kInvalidArgument,
            Where() + ": a push to a sparse table names keys, it has no mask of segments"};
  const size_t row_bytes = layout_.given_bytes();
  if (values.size() / row_bytes != keys.size() || values.size() % row_bytes != 0) {
    return {Code::kInvalidArgument, Where() + " has dim " + std::to_string(dim_) + ": " +
                                        std::to_string(keys.size()) + " keys need " +
                                        std::to_string(keys.size() * row_bytes) + " bytes of values, not " +
                                        std::to_string(values.size())};
  }
  if (Status status = CheckKeys(keys); !status.ok()) return status;
  if (check_finite_ && !optimizer::AllFinite(Floats(values))) {
    return {Code::kNotFinite, Where() + ": the push carries NaN or Inf"};
  }
  return Status::Ok();
}

void SparseSlot::ReadNarrowValues(std::span<const RowKey> keys, float* out) const {
  const auto missing = [](RowKey, uint64_t) { return LineIndex::kNoRow; };
  ForRowGroups(index_, rows_, keys, missing, [&](size_t first, std::span<const uint32_t> group) {
    const uint16_t* rows[kGroup];
    float* to[kGroup];
    size_t count = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      float* const row = out + (first + i) * dim_;
      if (__builtin_expect(group[i] == LineIndex::kNoRow, 0)) {  // as it would be stored
        initial_.FillRow(keys[first + i], dim_, reinterpret_cast<std::byte*>(row));
        optimizer::RoundSpan(storage_, {row, dim_});
      } else {
        rows[count] = reinterpret_cast<const uint16_t*>(rows_.At(group[i]));
        to[count++] = row;
      }
    }
    optimizer::WidenRows(storage_, {rows, count}, to, dim_);
  });
}

void SparseSlot::ReadValues(std::span<const RowKey> keys, std::byte* out) const {
  if (narrow()) return ReadNarrowValues(keys, reinterpret_cast<float*>(out));
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
  if (layout_.value_bytes() == 64) {  // dim 16: four moves instead of a call
    read_all(std::integral_constant<size_t, 64>{});
  } else {
    read_all(layout_.value_bytes());
  }
}

void SparseSlot::Read(std::span<const RowKey> keys, uint8_t column, std::byte* out) const {
  if (column == 0) return ReadValues(keys, out);
  if (column == kKeyColumn) {
    index_.ForEach([&](RowKey key, uint32_t) {
      std::memcpy(out, &key, sizeof(key));
      out += sizeof(key);
    });
    return;
  }
  auto* numbers = reinterpret_cast<float*>(out);
  if (column == kStepColumn) {
    std::fill_n(numbers, keys.size() * dim_, static_cast<float>(step_));
    return;
  }
  const auto missing = [](RowKey, uint64_t) { return LineIndex::kNoRow; };
  ForRows(index_, rows_, keys, missing, [&](size_t i, uint32_t row) {
    layout_.ReadState(row == LineIndex::kNoRow ? nullptr : rows_.At(row), column, numbers + i * dim_);
  });
}

uint64_t SparseSlot::memory_bytes() const {
  return sizeof(*this) + index_.memory_bytes() + rows_.memory_bytes() +
         (staging_ == nullptr ? 0 : staging_->memory_bytes());
}

uint64_t SparseSlot::content_bytes() const {
  constexpr uint64_t kIndexBytes = 18;  // of a row, with its key
  return rows() * (rows_.row_bytes() + kIndexBytes);
}

uint64_t SparseSlot::Hash() const {
  constexpr size_t kAhead = 16;  // rows that are on their way to the cache
  struct {
    RowKey key;
    const std::byte* row;
  } ahead[kAhead];
  uint64_t sum = Mix64(step_);  // addition, so that the order does not matter
  if (narrow()) sum += Mix64(operations_, 1);
  size_t count = 0;
  const auto add = [&](size_t i) {
    sum += XXH3_64bits_withSeed(ahead[i % kAhead].row, rows_.row_bytes(), Mix64(ahead[i % kAhead].key));
  };
  index_.ForEach([&](RowKey key, uint32_t row) {
    if (count >= kAhead) add(count);
    ahead[count++ % kAhead] = {key, rows_.At(row)};
    for (size_t at = 0; at < std::min(rows_.row_bytes(), kPrefetchBytes); at += 64)
      __builtin_prefetch(rows_.At(row) + at);
  });
  for (size_t i = 0; i < std::min(count, kAhead); ++i) add(i);
  return sum;
}

void SparseSlot::ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const {
  if (!narrow()) {
    index_.ForEach([&](RowKey key, uint32_t number) {
      row(key, std::span<const std::byte>(rows_.At(number), rows_.row_bytes()));
    });
    return;
  }
  std::vector<std::byte> wide(rows_.row_bytes() - layout_.value_bytes() + layout_.given_bytes());
  index_.ForEach([&](RowKey key, uint32_t number) {
    const std::byte* const at = rows_.At(number);
    const auto* const values = reinterpret_cast<const uint16_t*>(at);
    auto* const floats = reinterpret_cast<float*>(wide.data());
    optimizer::WidenRows(storage_, {&values, 1}, &floats, dim_);
    std::memcpy(wide.data() + layout_.given_bytes(), at + layout_.value_bytes(),
                rows_.row_bytes() - layout_.value_bytes());
    row(key, wide);
  });
}

// What changes a sparse slot: pushes, rounds and assigns, row by row.

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

void SparseSlot::Assign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask,
                        uint8_t column) {
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

void SparseSlot::AssignStaged(uint8_t, double) {
  CheckFailed("staging is of dense tables", __FILE__, __LINE__);
}

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
    if (by > 0) UpdateFloats(keys, Keys::kOfARound, hyper, optimizer::GradientOf(flags_, by, scale), sums);
  }
  DropStaged();
}

void SparseSlot::DropStaged() {
  if (staging_ != nullptr) staging_->Clear();
  staged_ = false;
}

// A sparse slot as bytes, little-endian:
//
//   | step, 8 B | staged, 8 B (0 or 1) | narrow values only: operations, 8 B | rows (row_copy.h)
//   | staged: rows of sums (row_copy.h) |

void SparseSlot::Save(ByteWriter& out) const {
  out.Put<uint64_t>(step_);
  out.Put<uint64_t>(staged_ ? 1 : 0);
  if (narrow()) out.Put<uint64_t>(operations_);
  SaveRows(out, index_, rows_);
  if (staged_) staging_->Save(out);
}

bool SparseSlot::Load(ByteReader& in) {
  CAIRN_CHECK(rows_.count() == 0 && !staged_);
  step_ = in.Get<uint64_t>();
  const auto staged = in.Get<uint64_t>();
  if (narrow()) operations_ = in.Get<uint64_t>();
  std::vector<RowKey> keys;
  if (staged > 1 || !LoadRows(in, slot_, slot_count_, index_, rows_, keys)) return false;
  return staged == 0 || LoadStaged(in);
}

void SparseSlot::SaveStaged(ByteWriter& out) const {
  CAIRN_CHECK(staged_);
  staging_->Save(out);
}

bool SparseSlot::LoadStaged(ByteReader& in) {
  CAIRN_CHECK(!staged_);
  staged_ = optimizer_ != OptimizerKind::kFirst && Staging().Load(in, slot_, slot_count_);
  return staged_;
}

}  // namespace cairn::table

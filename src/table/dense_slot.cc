#include "table/dense_slot.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "optimizer/span_ops.h"
#include "table/initial_value.h"

namespace cairn::table {
namespace {

// x with a * x = 1 modulo n. Requires coprime a and n.
uint64_t InverseModulo(uint64_t a, uint64_t n) {
  int64_t r0 = static_cast<int64_t>(n), r1 = static_cast<int64_t>(a % n), t0 = 0, t1 = 1;
  while (r1 > 0) {
    const int64_t q = r0 / r1;
    r0 = std::exchange(r1, r0 - q * r1);
    t0 = std::exchange(t1, t0 - q * t1);
  }
  CAIRN_CHECK(r0 == 1);
  return static_cast<uint64_t>(t0 < 0 ? t0 + static_cast<int64_t>(n) : t0);
}

// The runs of one slot: RunsBySlot(layout)[slot] without computing those of all the others. The
// stride is coprime to the number of slots, so every slot_count-th block is this slot's.
std::vector<wire::DenseRun> RunsOf(const wire::DenseLayout& layout, SlotId slot) {
  std::vector<wire::DenseRun> runs;
  const uint64_t n = layout.slot_count, steps = (slot.value + n - layout.start % n) % n;
  const uint64_t first = n == 1 ? 0 : steps * InverseModulo(layout.stride, n) % n;
  for (uint64_t b = first; b < layout.block_count(); b += n) {
    const uint64_t begin = b * layout.block;
    runs.push_back({begin, static_cast<uint32_t>(std::min<uint64_t>(layout.block, layout.size - begin))});
  }
  CAIRN_CHECK(runs.empty() || layout.SlotOfBlock(first) == slot.value);
  return runs;
}

}  // namespace

DenseSlot::DenseSlot(const wire::TableInfo& info, SlotId slot, uint32_t slot_count, Arena& arena)
    : name_(info.spec.name),
      element_(info.spec.element),
      optimizer_(info.spec.optimizer),
      check_finite_(element_ == ElementType::kFloat32 && info.spec.non_finite == NonFinitePolicy::kReject),
      slot_(slot),
      arena_(arena) {
  CAIRN_CHECK(slot.value < slot_count);
  const auto runs = RunsOf(wire::DenseLayout::Of(info.id, info.spec.size, slot_count), slot);
  for (const wire::DenseRun& run : runs) elements_ += run.count;
  const size_t element_bytes = element_ == ElementType::kFloat32 ? 4 : 8;
  bytes_ = elements_ * element_bytes;
  if (bytes_ == 0) return;
  values_ = arena_.Take(bytes_);
  const InitialValue initial(info.spec.init, info.id, info.spec.element);
  std::byte* out = values_;
  for (const wire::DenseRun& run : runs) {
    initial.FillElements(run.begin, run.count, out);
    out += run.count * element_bytes;
  }
}

DenseSlot::~DenseSlot() {
  if (values_ != nullptr) arena_.Give(values_, bytes_);
  if (staging_piece_ != nullptr) arena_.Give(staging_piece_, bytes_ + kStagingOffset);
}

Status DenseSlot::CheckKeys(std::span<const RowKey> keys) const {
  if (keys.empty()) return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + name_ + "\" is dense: a request for it has no keys"};
}

Status DenseSlot::Check(std::span<const RowKey> keys, std::span<const std::byte> values) const {
  if (Status status = CheckKeys(keys); !status.ok()) return status;
  if (values.size() != bytes_) {
    return {Code::kInvalidArgument, "table \"" + name_ + "\", slot " + std::to_string(slot_.value) + " has " +
                                        std::to_string(elements_) + " elements (" + std::to_string(bytes_) +
                                        " bytes), the push carries " + std::to_string(values.size()) +
                                        " bytes"};
  }
  if (check_finite_ && !optimizer::AllFinite(floats(values.data()))) {
    return {Code::kNotFinite,
            "table \"" + name_ + "\", slot " + std::to_string(slot_.value) + ": the push carries NaN or Inf"};
  }
  return Status::Ok();
}

void DenseSlot::Apply(std::span<const RowKey>, std::span<const std::byte> values, const Hyper& hyper) {
  if (element_ == ElementType::kInt64) {
    optimizer::SumSpan(integers(values_), integers(values.data()));
  } else if (optimizer_ == OptimizerKind::kSum) {
    optimizer::SumSpan(floats(values_), floats(values.data()));
  } else {
    optimizer::SgdSpan(floats(values_), floats(values.data()), hyper);
  }
}

void DenseSlot::Read(std::span<const RowKey>, std::byte* out) const {
  if (bytes_ > 0) std::memcpy(out, values_, bytes_);
}

void DenseSlot::Stage(std::span<const RowKey>, std::span<const std::byte> values, double weight) {
  const bool first = !std::exchange(staged_, true);
  if (bytes_ == 0) return;
  if (staging_piece_ == nullptr) staging_piece_ = arena_.Take(bytes_ + kStagingOffset);
  if (element_ == ElementType::kInt64) {
    if (first) {
      std::memcpy(staging(), values.data(), bytes_);
    } else {
      optimizer::SumSpan(integers(staging()), integers(values.data()));
    }
    return;
  }
  const float by = optimizer_ == OptimizerKind::kSum ? 1.0f : static_cast<float>(weight);
  if (first) {
    optimizer::StageCopySpan(floats(staging()), floats(values.data()), by);
  } else {
    optimizer::StageAddSpan(floats(staging()), floats(values.data()), by);
  }
}

void DenseSlot::ApplyStaged(const Hyper& hyper, double divisor) {
  CAIRN_CHECK(divisor > 0 || optimizer_ == OptimizerKind::kSum);
  if (!std::exchange(staged_, false) || bytes_ == 0) return;
  const std::byte* sum = staging();
  if (element_ == ElementType::kInt64) {
    optimizer::SumSpan(integers(values_), integers(sum));
  } else if (optimizer_ == OptimizerKind::kSum) {
    optimizer::SumSpan(floats(values_), floats(sum));
  } else if (const auto by = static_cast<float>(divisor); by > 0) {
    // Weights come from peers: a divisor that is no float counts as 0, and nothing is applied.
    optimizer::SgdOfMeanSpan(floats(values_), floats(sum), hyper, by);
  }
}

uint64_t DenseSlot::memory_bytes() const {
  return sizeof(*this) + (values_ == nullptr ? 0 : Arena::Rounded(bytes_)) +
         (staging_piece_ == nullptr ? 0 : Arena::Rounded(bytes_ + kStagingOffset));
}

uint64_t DenseSlot::Hash() const { return XXH3_64bits(values_, bytes_); }

void DenseSlot::ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const {
  row(0, {values_, bytes_});
}

}  // namespace cairn::table

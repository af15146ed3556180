#include "table/dense/dense_slot.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "optimizer/span_ops.h"
#include "table/initial_value.h"

namespace cairn::table {

DenseSlot::DenseSlot(const wire::TableInfo& info, SlotId slot, uint32_t slot_count, Arena& arena,
                     Purpose purpose)
    : name_(info.spec.name),
      element_(info.spec.element),
      optimizer_(info.spec.optimizer),
      flags_(info.spec.optimizer_flags),
      check_finite_(element_ == ElementType::kFloat32 && info.spec.non_finite == NonFinitePolicy::kReject),
      slot_(slot),
      segments_(SegmentCount(info.spec)),
      arena_(arena) {
  CAIRN_CHECK(slot.value < slot_count);
  const auto runs = RunsOf(wire::DenseLayout::Of(info.id, info.spec.size, slot_count), slot);
  const auto pieces = PiecesOf(runs, info.spec.segments);
  pieces_.reserve(pieces.size());
  for (const DensePiece& piece : pieces) {
    pieces_.push_back({piece});
    elements_ += piece.count;
  }
  const size_t element_bytes = element_ == ElementType::kFloat32 ? 4 : 8;
  bytes_ = elements_ * element_bytes;
  float initial_state[optimizer::kMaxStateColumns];
  const uint32_t columns = StateColumns(optimizer_, flags_);
  for (uint32_t c = 0; c < columns; ++c)
    initial_state[c] = optimizer::InitialState(optimizer_, c, info.spec.initial_state);
  state_ = std::make_unique<DenseState>(arena_, std::span(initial_state).first(columns), elements_);
  if (bytes_ == 0) return;
  values_ = arena_.Take(bytes_);
  if (purpose == Purpose::kToLoad) return;
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

std::string DenseSlot::Where() const {
  return "table \"" + name_ + "\", slot " + std::to_string(slot_.value);
}

Status DenseSlot::NotFinite() const {
  return {Code::kNotFinite, Where() + ": the push carries NaN or Inf"};
}

Status DenseSlot::CheckShape(std::span<const std::byte> values) const {
  if (values.size() == bytes_) return Status::Ok();
  return {Code::kInvalidArgument, Where() + " has " + std::to_string(elements_) + " elements (" +
                                      std::to_string(bytes_) + " bytes), the push carries " +
                                      std::to_string(values.size()) + " bytes"};
}

Status DenseSlot::CheckColumn(uint8_t column) const {
  if (column == 0) return Status::Ok();
  if (element_ == ElementType::kFloat32 && (column == kStepColumn || column <= state_->columns()))
    return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + name_ + "\" has no column " + std::to_string(column) +
                                      ": its optimizer keeps " + std::to_string(state_->columns()) +
                                      " state arrays"};
}

Status DenseSlot::CheckRead(std::span<const RowKey> keys, uint8_t column) const {
  if (keys.empty()) return CheckColumn(column);
  return {Code::kInvalidArgument, "table \"" + name_ + "\" is dense: a request for it has no keys"};
}

Status DenseSlot::Check(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask) const {
  if (Status status = CheckRead(keys, 0); !status.ok()) return status;
  if (Status status = CheckShape(values); !status.ok()) return status;
  return CheckSegments(values, mask);
}

Status DenseSlot::CheckSegments(std::span<const std::byte> values, Mask mask) const {
  const size_t most = (segments_ + 7) / 8;
  const size_t beyond = segments_ % 8;  // bits of the last byte that stand for segments; 0: all
  if (mask.size() > most || (beyond != 0 && mask.size() == most &&
                             std::to_integer<unsigned>(mask.back()) >> beyond != 0)) {
    return {Code::kInvalidArgument, "table \"" + name_ + "\" has " + std::to_string(segments_) +
                                        " segments, the push's mask names others"};
  }
  if (!check_finite_) return Status::Ok();
  for (const Piece& piece : pieces_) {
    if (InMask(mask, piece.segment) && !optimizer::AllFinite(Part<float>(values.data(), piece)))
      return NotFinite();
  }
  return Status::Ok();
}

Status DenseSlot::CheckAssign(std::span<const RowKey>, std::span<const std::byte> values, Mask mask,
                              uint8_t column) const {
  if (element_ != ElementType::kFloat32)
    return {Code::kInvalidArgument,
            "table \"" + name_ + "\" is of int64: assign is for dense tables of float32"};
  if (Status status = CheckColumn(column); !status.ok()) return status;
  if (Status status = CheckShape(values); !status.ok()) return status;
  return CheckSegments(values, mask);
}

void DenseSlot::Read(std::span<const RowKey>, uint8_t column, std::byte* out) const {
  if (bytes_ == 0) return;
  if (column == 0) {
    CopyBytes(out, values_, bytes_);
  } else if (column == kStepColumn) {
    for (const Piece& piece : pieces_)
      std::ranges::fill(Part<float>(out, piece), static_cast<float>(piece.steps));
  } else {
    state_->Read(column, reinterpret_cast<float*>(out));
  }
}

std::span<const std::byte> DenseSlot::View(uint8_t column) const {
  if (column != 0) return {};
  return {values_, bytes_};
}

uint64_t DenseSlot::memory_bytes() const {
  return sizeof(*this) + pieces_.capacity() * sizeof(Piece) + sizeof(DenseState) + state_->memory_bytes() +
         (values_ == nullptr ? 0 : Arena::Rounded(bytes_)) +
         (staging_piece_ == nullptr ? 0 : Arena::Rounded(bytes_ + kStagingOffset));
}

uint64_t DenseSlot::content_bytes() const { return bytes_ + state_->memory_bytes(); }

uint64_t DenseSlot::Hash() const {
  uint64_t hash = state_->Hash(XXH3_64bits_withSeed(values_, bytes_, assigned() ? 1 : 0));
  for (const Piece& piece : pieces_) hash = XXH3_64bits_withSeed(&piece.steps, sizeof(piece.steps), hash);
  return hash;
}

void DenseSlot::ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const {
  row(0, {values_, bytes_});
}

}  // namespace cairn::table

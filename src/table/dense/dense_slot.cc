#include "table/dense/dense_slot.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/byte_stream.h"
#include "base/check.h"
#include "base/copy_bytes.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"
#include "table/initial_value.h"
#include "table/step_number.h"

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

Status DenseSlot::NotFinite() const { return {Code::kNotFinite, Where() + ": the push carries NaN or Inf"}; }

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
  if (mask.size() > most ||
      (beyond != 0 && mask.size() == most && std::to_integer<unsigned>(mask.back()) >> beyond != 0)) {
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

// What changes a dense slot: pushes, rounds and assigns, piece by piece.

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

// A dense slot as bytes, little-endian; what it is made of follows from the table's spec and must
// agree with it:
//
//   | elements, 8 B | pieces, 4 B | state columns, 1 B | state made | assigned | staged (0 or 1) |
//   | steps of each piece, 8 B each | values | made: each state column | staged: sums |
//
// Sums: | pieces, 8 B | staged, 1 B a piece (0 or 1) | the staged pieces' elements |

namespace {

struct Head {
  uint64_t elements = 0;
  uint32_t pieces = 0;
  uint8_t columns = 0;
  uint8_t made = 0;
  uint8_t assigned = 0;
  uint8_t staged = 0;
};
static_assert(sizeof(Head) == 16);

}  // namespace

void DenseSlot::Save(ByteWriter& out) const {
  const Head head{.elements = elements_,
                  .pieces = static_cast<uint32_t>(pieces_.size()),
                  .columns = static_cast<uint8_t>(state_->columns()),
                  .made = state_->made(),
                  .assigned = assigned(),
                  .staged = staged_};
  const size_t arrays = 1 + (head.made ? head.columns : 0) + head.staged;
  out.Reserve(sizeof(head) + pieces_.size() * (sizeof(uint64_t) + 1) + sizeof(uint64_t) + arrays * bytes_);
  out.Put(head);
  for (const Piece& piece : pieces_) out.Put<uint64_t>(piece.steps);
  out.PutRaw({values_, bytes_});
  for (uint32_t c = 0; c < head.columns && head.made; ++c)
    out.PutRaw({reinterpret_cast<const std::byte*>(state_->arrays()[c]), bytes_});
  if (staged_) SaveStaged(out);
}

bool DenseSlot::Load(ByteReader& in) {
  CAIRN_CHECK(!staged_);
  const auto head = in.Get<Head>();
  if (!in.ok() || head.elements != elements_ || head.pieces != pieces_.size() ||
      head.columns != state_->columns() || head.made > 1 || head.assigned > 1 || head.staged > 1 ||
      (head.made == 1 && (head.columns == 0 || elements_ == 0))) {
    return false;
  }
  const size_t arrays = 1 + (head.made == 1 ? head.columns : 0);
  if (in.left() / arrays < bytes_) return false;  // before memory is taken for state
  for (Piece& piece : pieces_) piece.steps = in.Get<uint64_t>();
  const auto copy = [&](void* to) {
    const auto from = in.GetRaw(bytes_);
    if (!from.empty()) std::memcpy(to, from.data(), bytes_);
  };
  copy(values_);
  if (head.made == 1) {
    state_->MakeUnfilled();
    for (uint32_t c = 0; c < head.columns; ++c) copy(state_->arrays()[c]);
  }
  assigned_ = head.assigned == 1;
  if (!in.ok()) return false;
  return head.staged == 0 || LoadStaged(in);
}

void DenseSlot::SaveStaged(ByteWriter& out) const {
  CAIRN_CHECK(staged_);
  out.Reserve(sizeof(uint64_t) + pieces_.size() + bytes_);
  out.Put<uint64_t>(pieces_.size());
  for (const Piece& piece : pieces_) out.Put<uint8_t>(piece.staged);
  for (const Piece& piece : pieces_) {
    if (piece.staged) out.PutRaw(PartBytes(staging(), piece));
  }
}

bool DenseSlot::LoadStaged(ByteReader& in) {
  CAIRN_CHECK(!staged_);
  if (optimizer_ == OptimizerKind::kFirst) return false;  // async only
  if (in.Get<uint64_t>() != pieces_.size()) return false;
  const auto flags = in.GetRaw(pieces_.size());
  if (!in.ok() || std::ranges::any_of(flags, [](std::byte b) { return b > std::byte{1}; })) return false;
  if (bytes_ > 0) TakeStaging();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (flags[i] == std::byte{0}) continue;
    const auto to = PartBytes(staging(), piece);
    const auto from = in.GetRaw(to.size());
    if (from.size() != to.size()) {
      DropStaged();
      return false;
    }
    std::memcpy(to.data(), from.data(), from.size());
    piece.staged = true;
  }
  staged_ = true;
  return true;
}

}  // namespace cairn::table

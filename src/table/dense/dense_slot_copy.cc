// A dense slot as bytes, little-endian; what it is made of follows from the table's spec and must
// agree with it:
//
//   | elements, 8 B | pieces, 4 B | state columns, 1 B | state made | assigned | staged (0 or 1) |
//   | steps of each piece, 8 B each | values | made: each state column | staged: sums |
//
// Sums: | pieces, 8 B | staged, 1 B a piece (0 or 1) | the staged pieces' elements |
#include <algorithm>
#include <cstring>

#include "base/byte_stream.h"
#include "base/check.h"
#include "table/dense/dense_slot.h"

namespace cairn::table {
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

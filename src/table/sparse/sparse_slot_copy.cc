// A sparse slot as bytes, little-endian:
//
//   | step, 8 B | staged, 8 B (0 or 1) | narrow values only: operations, 8 B | rows (row_copy.h)
//   | staged: rows of sums (row_copy.h) |
#include "base/check.h"
#include "table/sparse/row_copy.h"
#include "table/sparse/sparse_slot.h"

namespace cairn::table {

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

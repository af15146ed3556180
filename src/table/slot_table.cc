#include "table/slot_table.h"

#include "base/check.h"
#include "table/dense/dense_slot.h"
#include "table/sparse/sparse_slot.h"

namespace cairn::table {

namespace {

// What the scheduler lets through (its CheckSpec says it to users).
bool Exists(const TableSpec& spec) {
  const OptimizerKind kind = spec.optimizer;
  if (spec.storage != Storage::kFull &&
      (spec.kind != TableKind::kSparse || spec.element != ElementType::kFloat32))
    return false;
  if (spec.element == ElementType::kInt64)
    return kind == OptimizerKind::kSum || (kind == OptimizerKind::kFirst && spec.mode == Mode::kAsync);
  if (kind == OptimizerKind::kFirst) return false;
  if (spec.kind == TableKind::kDense) {
    return kind != OptimizerKind::kSparseAdam && kind != OptimizerKind::kRowwiseAdagrad &&
           (kind != OptimizerKind::kMean || spec.mode == Mode::kSync);
  }
  switch (kind) {
    case OptimizerKind::kSum:
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kSparseAdam:
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kFtrl: return true;
    case OptimizerKind::kSgd: return StateColumns(kind, spec.optimizer_flags) == 0;
    default: return false;
  }
}

}  // namespace

std::unique_ptr<SlotTable> SlotTable::Make(const wire::TableInfo& info, SlotId slot, uint32_t slot_count,
                                           Arena& arena, Purpose purpose) {
  // The scheduler refuses such a spec before it makes a table of it.
  CAIRN_CHECK(Exists(info.spec));
  if (info.spec.kind == TableKind::kDense)
    return std::make_unique<DenseSlot>(info, slot, slot_count, arena, purpose);
  return std::make_unique<SparseSlot>(info, slot, slot_count, arena);
}

}  // namespace cairn::table

#include "table/slot_table.h"

#include "base/check.h"
#include "table/dense_slot.h"
#include "table/sparse_slot.h"

namespace cairn::table {

std::unique_ptr<SlotTable> SlotTable::Make(const wire::TableInfo& info, SlotId slot, uint32_t slot_count,
                                           Arena& arena) {
  // The scheduler refuses such a spec before it makes a table of it.
  CAIRN_CHECK(info.spec.element == ElementType::kFloat32 || info.spec.optimizer == OptimizerKind::kSum);
  if (info.spec.kind == TableKind::kDense) return std::make_unique<DenseSlot>(info, slot, slot_count, arena);
  return std::make_unique<SparseSlot>(info, slot, slot_count, arena);
}

}  // namespace cairn::table

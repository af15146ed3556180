#include "server/slots/request.h"

#include "base/planted.h"
#include "server/slots/refusal_texts.h"

namespace cairn::server {

Status CheckPart(const TableState* table, const Status& shape, const wire::PushParams& params,
                 const Part& part, const char* what) {
  if (!shape.ok()) return shape;
  const table::SlotTable& rows = *table->rows[part.local];
  if (!table->sparse()) {
    if (Status s = CheckDenseCount(table->info.spec, part.entry, rows.rows(), what); !s.ok()) return s;
  }
  if (static_cast<PushOp>(params.op) != PushOp::kUpdate)
    return rows.CheckAssign(part.keys, part.values, part.mask, params.column);
  return rows.Check(part.keys, part.values, part.mask);
}

void ApplyPart(table::SlotTable& rows, const wire::PushParams& params, std::span<const RowKey> keys,
               std::span<const std::byte> values, table::Mask mask) {
  switch (static_cast<PushOp>(params.op)) {
    case PushOp::kUpdate: return rows.Apply(keys, values, mask, params.hyper());
    case PushOp::kAssign: return rows.Assign(keys, values, mask, params.column);
    case PushOp::kAssignOnce:
      if (CAIRN_BUG(kAssignOnceAgain)) return rows.Assign(keys, values, mask, params.column);
      return rows.AssignMissing(keys, values, mask, params.column);
  }
}

}  // namespace cairn::server

// What a shard says when it refuses a part or a frame: with names, numbers and what to do.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/status.h"
#include "cairn/types.h"
#include "server/slots/table_state.h"
#include "wire/data.h"

namespace cairn::server {

Status DroppedTable(TableId table);
Status WrongMode(const TableSpec& spec, const char* what);  // what: "a numbered push", "a contribution"

// Assigns that are numbered pushes in a sync table too, and no rounds (rules 31 and 36).
inline bool NumberedInSync(const TableSpec& spec, PushOp op) {
  return op == PushOp::kAssignOnce || (op == PushOp::kAssign && spec.kind == TableKind::kSparse);
}

// The whole of a push against the table's kind and row width: whether its values can be cut into
// parts at all. `what` is "push" or "contribution".
Status CheckPushShape(const TableSpec& spec, const wire::PushView& push, const char* what);
// The same for what a pull (or a push-pull's answer) asks for.
Status CheckPullShape(const TableSpec& spec, std::span<const wire::SlotEntry> entries,
                      std::span<const uint64_t> keys);
// A dense slot's part has as many elements as the slot.
Status CheckDenseCount(const TableSpec& spec, const wire::SlotEntry& entry, uint64_t elements,
                       const char* what);
// Hyper-parameters that are not finite, or that this optimizer can't work with.
Status CheckHyper(const TableSpec& spec, const wire::PushParams& params);
// What the parameters of a numbered push may say, beside its shape.
Status CheckAsyncParams(const TableSpec& spec, const wire::PushParams& params);
// And those of a contribution or done mark.
Status CheckRoundParams(const TableSpec& spec, const wire::PushParams& params, bool contributes);

}  // namespace cairn::server

// Requests for values: answered at once, or, of sync tables, once their round has begun, or, of bounded ones,
// once no worker is too far behind (docs/internals/consistency.md, rules 22, 31 and 57). The shard's thread
// owns it.
#pragma once

#include <cstdint>

#include "cairn/status.h"
#include "server/pull/clock_waits.h"
#include "server/pull/round_waits.h"
#include "server/pull/slot_reader.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/request.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"

namespace cairn::server {

class Pulls {
 public:
  // All outlive it.
  Pulls(const ShardContext& context, Outbox& outbox, const OwnedSlots& slots, Tables& tables,
        SlotReader& reader, RoundWaits& waits, ClockWaits& clock_waits)
      : context_(context),
        outbox_(outbox),
        slots_(slots),
        tables_(tables),
        reader_(reader),
        waits_(waits),
        clock_waits_(clock_waits) {}

  // Not ok: no worker of ours sends such a frame, and it has not been answered.
  [[nodiscard]] Status OnPull(const Request& request);
  uint64_t pulls() const { return pulls_; }

 private:
  // May it wait for its round?
  static Status CheckSync(const Request& request, const TableState& table, const wire::PullView& pull);

  const ShardContext& context_;
  Outbox& outbox_;
  const OwnedSlots& slots_;
  Tables& tables_;
  SlotReader& reader_;
  RoundWaits& waits_;
  ClockWaits& clock_waits_;
  uint64_t pulls_ = 0;
};

}  // namespace cairn::server

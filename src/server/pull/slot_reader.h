// Values of many slots as one answer, each slot's part with its position (docs/internals/consistency.md,
// rules 22, 31, 37 and 38). Rows are gathered into a pooled buffer, dense values sent from where they lie.
// Reading never changes anything. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "server/replication/commit_gate.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "server/slots/table_state.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::server {

// What an answer with values is made of.
struct Reading {
  std::span<const wire::SlotEntry> entries;
  std::span<const RowKey> keys;
  uint8_t column = 0;
  uint16_t reply_flags = 0;
  bool every_slot = false;     // the answer says something of all slots here
  std::optional<Round> clock;  // a bounded table: what every worker has told, in the place of the round
};

// The column that a pull asks for: all of its entries name the same (the decoder sees to it).
inline uint8_t ColumnOf(std::span<const wire::SlotEntry> entries) {
  return entries.empty() ? 0 : static_cast<uint8_t>(entries.front().number);
}

// A RoundReply to this request, as yet without anything in it.
wire::DataParts RoundReply(const TableState& table, const wire::FrameHeader& request, StateVersion version);

class SlotReader {
 public:
  // All outlive it.
  SlotReader(const ShardContext& context, Outbox& outbox, OwnedSlots& slots, CommitGate& gate)
      : context_(context), outbox_(outbox), slots_(slots), gate_(gate) {}

  // A PullReply or a RoundReply, as the request asks, or an error. Requires that the slots of the entries are
  // owned here.
  void Send(ConnId conn, const wire::FrameHeader& request, TableState& table, const Reading& reading);

 private:
  Status Check(const wire::FrameHeader& request, const TableState& table, const Reading& reading,
               uint64_t* bytes) const;

  const ShardContext& context_;
  Outbox& outbox_;
  OwnedSlots& slots_;  // for what the reads cost
  CommitGate& gate_;
  std::vector<wire::SlotEntry> entries_;  // of the answer under way
};

}  // namespace cairn::server

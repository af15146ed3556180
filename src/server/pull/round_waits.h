// Requests whose answer waits for rounds to close, or to be summed up, and what they are told then
// (docs/internals/consistency.md, rules 18, 22, 32 and 33): values, reports, "closed", or why not. A copy
// that comes after the close gets the same outcome. The requests lie in ParkedRequests (slots/parked.h), each
// waits at one slot at a time, and what wakes it is TableRounds' to say. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "server/pull/slot_reader.h"
#include "server/replication/commit_gate.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/parked.h"
#include "server/slots/part_problems.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"
#include "wire/control.h"
#include "wire/data.h"

namespace cairn::server {

class RoundWaits {
 public:
  // All outlive it.
  RoundWaits(const ShardContext& context, Outbox& outbox, const OwnedSlots& slots, const Tables& tables,
             CommitGate& gate, SlotReader& reader)
      : context_(context), outbox_(outbox), slots_(slots), tables_(tables), gate_(gate), reader_(reader) {}

  // True if a copy of this request waits already: its answer goes to `conn` now.
  bool Adopt(const wire::FrameHeader& header, ConnId conn) { return parked_.Adopt(header, conn) != nullptr; }
  // Answers with an error and returns false if its client has too much waiting here already.
  bool CheckRoom(const wire::FrameHeader& header, ConnId conn, uint64_t bytes);
  // Answers the request as soon as every slot that it is about has reached its round; maybe at once.
  void Await(TableState& table, ParkedRequest request);
  // These slots have been summed up or closed.
  void Wake(TableState& table, std::span<const uint32_t> moved, Round lowest_before);

  // For good.
  void AnswerAll(const Status& error);
  void AnswerTable(TableId table, const Status& error);
  void ForgetClient(Incarnation client) { parked_.ForgetClient(client); }
  // Its requests wait on for a copy on another connection.
  void ForgetConnection(ConnId conn) { parked_.ForgetConnection(conn); }

  void TellWaiting();  // on every tick: those who wait for long hear for whom
  // Rounds that requests have waited for, some seconds at least; for the heartbeats.
  std::vector<wire::StalledRound> stalled() const;

 private:
  void Advance(TableState& table, ParkedRequest& request);
  void Answer(TableState& table, ParkedRequest& request);
  void AnswerRound(TableState& table, const ParkedRequest& request);
  void SendReport(const TableState& table, const ParkedRequest& request, uint16_t joined);
  void SendAnswer(const ParkedRequest& request, wire::FramePtr frame);
  bool AllJoined(const TableState& table, const ParkedRequest& request) const;
  template <class Look>
  void ForEachSlotOf(const ParkedRequest& request, Look look) const;
  uint32_t WaitsAt(const TableState& table, const ParkedRequest& request) const;  // local slot

  const ShardContext& context_;
  Outbox& outbox_;
  const OwnedSlots& slots_;
  const Tables& tables_;
  CommitGate& gate_;
  SlotReader& reader_;
  ParkedRequests parked_;
  // Kept from one answer to the next so that their memory is.
  PartProblems problems_;
  std::vector<wire::SlotEntry> reported_;
  std::vector<ParkedId> woken_;
};

}  // namespace cairn::server

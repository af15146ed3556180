// Bounded tables: workers tell their clocks, and pulls wait until no worker is too far behind
// (docs/internals/consistency.md, rules 56 to 58). The clocks themselves are the table's (slots/clocks.h).
// The shard's thread owns it.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "server/pull/slot_reader.h"
#include "server/slots/outbox.h"
#include "server/slots/parked.h"
#include "server/slots/request.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"
#include "wire/control.h"
#include "wire/data.h"

namespace cairn::server {

class ClockWaits {
 public:
  // All outlive it.
  ClockWaits(const ShardContext& context, Outbox& outbox, Tables& tables, SlotReader& reader)
      : context_(context), outbox_(outbox), tables_(tables), reader_(reader) {}

  void OnClock(const Request& request);
  // A pull that names its worker's clock, of slots that are owned here: answered now or later.
  void OnPull(const Request& request, TableState& table, const wire::PullView& pull);

  // A new state: somebody may be gone for whom pulls have waited.
  void OnState();
  // For good.
  void AnswerAll(const Status& error);
  void AnswerTable(TableId table, const Status& error);
  void ForgetClient(Incarnation client) { parked_.ForgetClient(client); }
  // Its pulls wait on for a copy on another connection.
  void ForgetConnection(ConnId conn) { parked_.ForgetConnection(conn); }

  void TellWaiting();  // on every tick: those who wait for long hear for whom
  // For the heartbeats: clocks that pulls have waited for, some seconds at least.
  std::vector<wire::StalledRound> stalled() const;

 private:
  using ByClock = std::multimap<Round, ParkedId>;
  Status NotYetIn(const Request& request, const TableState& table) const;
  void Answer(TableState& table, const ParkedRequest& request);
  void Wake(TableState& table);

  const ShardContext& context_;
  Outbox& outbox_;
  Tables& tables_;
  SlotReader& reader_;
  ParkedRequests parked_;
  std::map<TableId, ByClock> waiting_;  // by the clock that all must have told; some may be forgotten
};

}  // namespace cairn::server

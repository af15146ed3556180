// Whose turn it is in the sync tables' rounds: one order of rounds and pulls a table (table_order.h), from
// this worker's first round on. One thread.
#pragma once

#include <map>
#include <memory>

#include "base/ids.h"
#include "cairn/status.h"
#include "client/protocol/client_core.h"
#include "client/protocol/table_order.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class RoundTurns {
 public:
  // `self`: this worker's entry; null if the state has none.
  void OnNewState(std::shared_ptr<const wire::ClusterState> state, const wire::WorkerInfo* self);
  void Clear() { orders_.clear(); }

  // Whether this worker has come into a view: rounds have numbers from then on.
  bool in_view() const { return joined_ != nullptr; }
  // The table was there before this worker: the others may be far on. Requires in_view().
  bool JoinedAfter(const wire::TableInfo& table) const { return table.created_view < self_.join_view; }
  // Null if there is no such table, or this worker is in no view yet.
  TableOrder* Of(TableId table);
  // Of the next round that is submitted; 0 where Of gives null.
  Round next_round(TableId table) const;
  // Whether a round, or one of its phases, may be submitted now. A round that is open for a decision is
  // this worker's only one. Requires Of(request.table).
  Status CheckTurn(const Request& request);

 private:
  Round FirstRoundOf(const wire::TableInfo& table) const;

  std::shared_ptr<const wire::ClusterState> state_;   // the newest
  std::shared_ptr<const wire::ClusterState> joined_;  // with which this worker came into a view
  wire::WorkerInfo self_;                             // its entry there
  std::map<TableId, TableOrder> orders_;
};

}  // namespace cairn::client

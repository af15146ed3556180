// CreateTable, CreateTables and DropTable: carried out once, answered when every server holds the result.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/load_reports.h"
#include "scheduler/core/state_teller.h"
#include "wire/control.h"

namespace cairn::scheduler {

class TableRequests {
 public:
  struct Options {
    size_t remembered = 256;  // requests of a worker, in the durable state
    size_t answers = 256;     // of a worker, of this start of the scheduler
  };
  TableRequests(const Options& options, Journal& journal, Connections& connections, const StateTeller& teller,
                const LoadReports& loads, const LogLine& log)
      : options_(options),
        journal_(journal),
        connections_(connections),
        teller_(teller),
        loads_(loads),
        log_(log) {}

  // True: a record may follow from it.
  bool OnRequest(ConnId conn, Incarnation worker, uint64_t request, const wire::ControlMessage& message);
  // True: others may have waited for its records.
  bool OnDisconnect(ConnId conn);
  void Forget(Incarnation worker);
  bool any() const { return !requests_.empty(); }

  // One record for all requests that wait; false: none was ready. Requires a running job with no view
  // pending: then creation need not wait.
  bool CarryOut();
  // After every event: those that are done.
  void Answer();

 private:
  using Key = std::pair<Incarnation, uint64_t>;
  struct Request {
    ConnId conn;
    wire::ControlMessage message;  // CreateTable, CreateTables or DropTable
    std::optional<wire::TableReply> reply;
    bool waits;  // for the record before, to share the next one with others
  };
  void Remember(const Key& key, const wire::TableReply& reply);

  const Options options_;
  Journal& journal_;
  Connections& connections_;
  const StateTeller& teller_;
  const LoadReports& loads_;
  const LogLine& log_;
  std::map<Key, Request> requests_;           // under way
  std::map<Key, wire::TableReply> answered_;  // so that a late copy gets the same answer
};

}  // namespace cairn::scheduler

// Which record follows from what has happened: the job forms, views are made, tables come and go, owners
// change, the job ends; one at a time, in this order. One thread.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/moves.h"
#include "scheduler/core/table_requests.h"
#include "scheduler/core/view_reports.h"

namespace cairn::scheduler {

class Progress {
 public:
  Progress(Journal& journal, Connections& connections, const ViewReports& views, TableRequests& tables,
           Moves& moves, const LogLine& log)
      : journal_(journal),
        connections_(connections),
        views_(views),
        tables_(tables),
        moves_(moves),
        log_(log) {}

  // One more record, if a rule asks for it. True: another may follow.
  bool Advance(int64_t now_us);
  // The job has another phase than before: what the user is told.
  void LogPhase() const;

 private:
  bool MakeView();  // the pending one; requires every server's report

  Journal& journal_;
  Connections& connections_;
  const ViewReports& views_;
  TableRequests& tables_;
  Moves& moves_;
  const LogLine& log_;
};

}  // namespace cairn::scheduler

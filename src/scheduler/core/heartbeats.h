// What a node's heartbeat changes, and what it is answered: each part of it goes to the class that keeps it.
// One thread.
#pragma once

#include <cstdint>

#include "scheduler/core/awaiting.h"
#include "scheduler/core/barriers.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/farewell.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/load_reports.h"
#include "scheduler/core/moves.h"
#include "scheduler/core/owner_news.h"
#include "scheduler/core/placer.h"
#include "scheduler/core/registration.h"
#include "scheduler/core/state_teller.h"
#include "scheduler/core/table_requests.h"
#include "scheduler/core/view_reports.h"

namespace cairn::scheduler {

class Heartbeats {
 public:
  struct Parts {
    const Journal& journal;
    Connections& connections;
    Registration& registration;
    StateTeller& teller;
    Barriers& barriers;
    ViewReports& views;
    LoadReports& loads;
    OwnerNews& news;
    Placer& placer;
    Moves& moves;
    Farewell& farewell;
    Awaiting& awaiting;
    const TableRequests& tables;
  };
  Heartbeats(int64_t heartbeat_us, const Parts& parts) : heartbeat_us_(heartbeat_us), parts_(parts) {}

  // True: a record may follow from it.
  bool OnHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, int64_t now_us);
  // After every event: whoever waits in a barrier should not wait for its next heartbeat as well.
  void TellBarrier();

 private:
  bool TakeServersPart(uint32_t server, const wire::Heartbeat& heartbeat, int64_t now_us);
  wire::HeartbeatReply ReplyNow();

  const int64_t heartbeat_us_;
  const Parts parts_;
};

}  // namespace cairn::scheduler

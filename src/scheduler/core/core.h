// The scheduler as a composition: what is known of each node at this moment and what has been decided, each
// kept by one class, and the order log → install → tell. The decisions themselves are in rules/ and
// placement/. This class only hands events to the others and lets them finish what follows. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "scheduler/core/awaiting.h"
#include "scheduler/core/barriers.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/deadlocks.h"
#include "scheduler/core/detection.h"
#include "scheduler/core/failover.h"
#include "scheduler/core/farewell.h"
#include "scheduler/core/heartbeats.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/launcher_requests.h"
#include "scheduler/core/load_reports.h"
#include "scheduler/core/moves.h"
#include "scheduler/core/owner_news.h"
#include "scheduler/core/placer.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/progress.h"
#include "scheduler/core/registration.h"
#include "scheduler/core/scale.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/core/single_owners.h"
#include "scheduler/core/state_teller.h"
#include "scheduler/core/table_requests.h"
#include "scheduler/core/view_reports.h"

namespace cairn::scheduler {

class SchedulerCore final : public Scheduler, private Journal::Listener, private Connections::Listener {
 public:
  SchedulerCore(const SchedulerOptions& options, MetaStore& store, Network& network, BufferPool& pool,
                int64_t now_us, LogLine log, SchedulerObserver* observer);
  Status Init(int64_t now_us);

  void OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;
  int64_t next_tick_us() const override { return moves_.next_tick_us(); }
  void OnWaited(int64_t waited_us) override { detection_.OnWaited(waited_us); }
  bool cut_off() const override { return detection_.cut_off(); }
  bool finished() const override { return farewell_.finished(); }
  Status fatal() const override { return journal_.fatal(); }
  const wire::ClusterState& state() const override { return journal_.state(); }
  std::string StatusJson(int64_t now_us) override;
  // For tests: all that a restart must bring back.
  const DurableState& durable() const { return journal_.durable(); }

 private:
  void OnCommitted(wire::Phase before) override;
  void OnStoreFailed() override { connections_.Mute(); }
  void OnNewConnection(Incarnation node) override { teller_.OnNewConnection(node); }
  void OnDismissed(Incarnation node) override;

  void Handle(ConnId conn, const wire::ControlMessage& message, int64_t now_us);
  void Settle(int64_t now_us);  // after every event: whatever follows from it
  void SettleAndAnswer(ConnId conn, uint64_t request, int64_t now_us);

  const SchedulerOptions options_;
  const LogLine log_;
  bool unsettled_ = true;  // something may follow from what happened last

  // What has been decided, and who hears of it.
  Journal journal_;
  Connections connections_;
  StateTeller teller_;
  // What nodes have said, and when.
  Presence presence_;
  Barriers barriers_;
  ViewReports views_;
  LoadReports loads_;
  OwnerNews news_;
  // What follows from it.
  TableRequests tables_;
  SingleOwners single_owners_;
  Failover failover_;
  Detection detection_;
  Placer placer_;
  Moves moves_;
  Progress progress_;
  Scale scale_;
  Registration registration_;
  LauncherRequests launcher_;
  Deadlocks deadlocks_;
  Farewell farewell_;
  Awaiting awaiting_;
  Heartbeats heartbeats_;
};

}  // namespace cairn::scheduler

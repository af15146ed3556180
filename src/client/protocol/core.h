// The client core put together: the driver's events and the caller's calls go to the parts that they are
// for, and whatever ends is told at the end of each event. requests.h has the way of a request,
// control_calls.h what the scheduler answers, links.h and scheduler_link.h the connections, newest_state.h
// how a state comes. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/links/shard_link.h"
#include "client/links/slot_book.h"
#include "client/protocol/blocked_waits.h"
#include "client/protocol/client_core.h"
#include "client/protocol/completions.h"
#include "client/protocol/control_calls.h"
#include "client/protocol/newest_state.h"
#include "client/protocol/requests.h"
#include "client/protocol/start_call.h"
#include "client/protocol/waiting_log.h"
#include "client/protocol/waiting_words.h"

namespace cairn::client {

class Core final : public ClientCore, private SchedulerLink::Listener, private ShardLink::Listener {
 public:
  Core(const ClientCoreOptions& options, Network& network, BufferPool& pool, LogLine log, int64_t now_us,
       ClientObserver* observer);

  void OnConnected(ConnId conn, int64_t now_us) override;
  void OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;
  uint64_t MostBodyBytes(ConnId conn, const wire::FrameHeader& header) const override;

  void Start(int64_t deadline_us, Done done, int64_t now_us) override;
  void CreateTable(const TableSpec& spec, int64_t deadline_us, TableDone done, int64_t now_us) override;
  void CreateTables(std::vector<TableSpec> specs, int64_t deadline_us, TablesDone done,
                    int64_t now_us) override;
  void DropTable(const std::string& name, int64_t deadline_us, Done done, int64_t now_us) override;
  void Submit(Request request, int64_t now_us) override;
  void SubmitInTurns(Request push, Request pull, int64_t now_us) override;
  void EndStep(TableId table, bool last, int64_t now_us) override;
  Round clock(TableId table) const override { return requests_.clocks().Of(table); }
  std::vector<uint64_t> staleness() const override { return Staleness(); }
  bool has_room() const override { return requests_.bound().has_room(); }
  void Barrier(int64_t deadline_us, Done done, int64_t now_us) override;
  void Leave(int64_t deadline_us, Done done, int64_t now_us) override;
  void Cancel(int64_t now_us) override;

  std::shared_ptr<const wire::ClusterState> state() const override { return scheduler_.state(); }
  Incarnation incarnation() const override { return scheduler_.incarnation(); }
  Term term() const override { return scheduler_.term(); }
  Rank rank() const override { return scheduler_.rank(); }
  Round next_round(TableId table) const override { return requests_.turns().next_round(table); }
  Status fatal() const override { return calls_.left() ? Status::Ok() : fatal_; }
  uint64_t frames_sent() const override { return links_.frames_sent(); }
  uint64_t rewinds() const override { return links_.rewinds() + requests_.reroutes(); }

 private:
  // SchedulerLink::Listener
  void OnRegistered(int64_t) override {}
  void OnNewState(int64_t now_us) override;
  void OnReply(const wire::ControlMessage& message, int64_t now_us) override;
  void OnRefused(Status why, int64_t now_us) override;
  wire::NodeStats Stats() const override;
  std::vector<uint64_t> Staleness() const override { return requests_.clocks().staleness(); }
  // ShardLink::Listener
  ShardLink::Verdict OnValues(const Outgoing& frame, const Answer& answer,
                              const wire::ValuesView& values) override;
  void OnApplied(SlotId slot, Seq seq) override;
  void OnFrameEnd(const Outgoing& frame, const Status& outcome, const Answer& answer,
                  int64_t now_us) override;
  void OnNewerState(StateVersion version, int64_t now_us) override;
  void OnStateOf(ShardLink& link, wire::ControlMessage& message) override;
  void OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message) override;
  void OnLinkFatal(Status why, int64_t now_us) override;

  // Why no new call is taken; ok if it is.
  Status Closed() const;
  // After every event: calls that can go on do, and ended ones are told.
  void Settle(int64_t now_us);
  void OnDeadlock(const wire::Deadlock& message, int64_t now_us);
  // Why this worker can't go on in the state that has come; ok if it can.
  Status EndOf(const wire::ClusterState& state, const wire::WorkerInfo* self);
  // Every call ends with it (pushes that were sent: outcome unknown); the connections close.
  void EndEverything(Status why);

  const ClientCoreOptions options_;
  const LogLine log_;
  ClientObserver* const observer_;
  Completions completions_;
  SlotBook book_;
  SchedulerLink scheduler_;
  Links links_;
  NewestState newest_;
  const WaitingWords words_;
  ControlCalls calls_;
  StartCall start_;
  Requests requests_;
  BlockedWaits blocked_;
  WaitingLog waiting_log_;
  Status fatal_;  // once not ok, every call ends with it; also when this worker has left
  uint32_t retired_while_leaving_ = 0;
};

}  // namespace cairn::client

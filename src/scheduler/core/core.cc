#include "scheduler/core/core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "scheduler/core/job_options.h"
#include "scheduler/core/status_json.h"
#include "scheduler/rules/server_count.h"

namespace cairn::scheduler {

SchedulerCore::SchedulerCore(const SchedulerOptions& options, MetaStore& store, Network& network,
                             BufferPool& pool, int64_t now_us, LogLine log, SchedulerObserver* observer)
    : options_(options),
      log_(std::move(log)),
      journal_(store, options.bounds.log_bytes, observer, *this),
      connections_(network, pool, {options.max_callers, options.caller_idle_us}, *this),
      teller_(journal_, connections_, options.bounds.recent_states, log_),
      presence_({options.heartbeat_us, options.dead_after_us,
                 std::max(options.lost_after_us, options.dead_after_us)},
                now_us, log_),
      barriers_(journal_),
      news_(options.heartbeat_us, presence_),
      tables_({options.bounds.table_requests, options.bounds.table_answers}, journal_, connections_, teller_,
              loads_, log_),
      single_owners_(log_),
      failover_(options.lost_after_us, journal_, connections_, presence_, loads_, single_owners_, log_),
      detection_({options.dead_after_us, options.lost_after_us, options.rejoin_grace_us}, now_us, journal_,
                 connections_, presence_, failover_, log_),
      placer_(options.traffic, journal_, presence_, barriers_, loads_, news_, log_),
      moves_(options.replicas, journal_, connections_, presence_, news_, placer_, single_owners_, log_),
      progress_(journal_, connections_, views_, tables_, moves_, log_),
      scale_(options.replicas, journal_, connections_, news_, log_),
      registration_(options.heartbeat_us, journal_, connections_, presence_, barriers_, teller_, tables_,
                    failover_, scale_, log_),
      launcher_(journal_, connections_, presence_, detection_, registration_, log_),
      deadlocks_(options.deadlock_after_us, options.heartbeat_us, journal_, barriers_, connections_, log_),
      farewell_(journal_, connections_, presence_, teller_, log_),
      awaiting_(journal_, presence_, barriers_, views_),
      heartbeats_(options.heartbeat_us, {journal_, connections_, registration_, teller_, barriers_, views_,
                                         loads_, news_, placer_, moves_, farewell_, awaiting_, tables_}) {}

Status SchedulerCore::Init(int64_t now_us) {
  if (Status status = CheckOptions(options_); !status.ok()) return status;
  if (Status status = journal_.Load(NewJob(options_)); !status.ok()) return status;
  if (!journal_.was_empty())
    if (Status status = CheckSameJob(options_, durable()); !status.ok()) return status;
  DurableState next = journal_.Next();
  const uint32_t replicas_before = next.state.replicas;
  next.state.term = next.state.term.Next();
  next.state.min_in_sync = options_.min_in_sync;
  ExpectServers(next, next.state.expected_servers, options_.replicas);
  if (!journal_.Commit(std::move(next))) return fatal();
  registration_.Restore(now_us);
  if (durable().over()) farewell_.StayUntil(now_us + options_.dead_after_us);
  for (const std::string& line : StartLines(options_, durable(), replicas_before)) log_(line);
  Settle(now_us);
  return fatal();
}

void SchedulerCore::OnCommitted(wire::Phase before) {
  unsettled_ = true;
  teller_.OnCommitted();
  if (state().phase != before) progress_.LogPhase();
}

void SchedulerCore::OnDismissed(Incarnation node) {
  teller_.Forget(node);
  presence_.Forget(node);
  barriers_.Forget(node);
  views_.Forget(node);
  loads_.Forget(node);
  news_.Forget(node);
  tables_.Forget(node);
  placer_.Forget(node);
  farewell_.Forget(node);
}

void SchedulerCore::Settle(int64_t now_us) {
  while (unsettled_) unsettled_ = progress_.Advance(now_us);
  if (!journal_.ok()) return;
  detection_.NoteWorkers(now_us);
  teller_.Broadcast(now_us);
  tables_.Answer();
  heartbeats_.TellBarrier();
  farewell_.Update(now_us);
}

void SchedulerCore::SettleAndAnswer(ConnId conn, uint64_t request, int64_t now_us) {
  Settle(now_us);
  connections_.Send(conn, wire::StatusReply{request, StatusJson(now_us)});
}

void SchedulerCore::OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) {
  if (!journal_.ok()) return;
  auto message =
      frame.header.type == wire::FrameType::kControl
          ? wire::DecodeControl(frame.header, frame.body())
          : Result<wire::ControlMessage>(Code::kProtocol, "a data frame came to the scheduler's port");
  if (!message.ok()) {
    connections_.Refuse(conn, Code::kProtocol, message.status().message(), frame.header.request_id);
    connections_.Close(conn, now_us);
    return;
  }
  Handle(conn, *message, now_us);
  connections_.NoteSpoken(conn, now_us);
  Settle(now_us);
}

void SchedulerCore::Handle(ConnId conn, const wire::ControlMessage& message, int64_t now_us) {
  const auto table_request = [&](const auto& m) {
    unsettled_ |= tables_.OnRequest(conn, m.incarnation, m.request, m);
  };
  const auto answer_if = [&](bool done, uint64_t request) {
    if (done) SettleAndAnswer(conn, request, now_us);
  };
  if (const auto* m = std::get_if<wire::Heartbeat>(&message)) {
    if (heartbeats_.OnHeartbeat(conn, *m, now_us)) unsettled_ = true;
    return;
  }
  if (const auto* m = std::get_if<wire::Register>(&message))
    return registration_.OnRegister(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::CreateTable>(&message)) return table_request(*m);
  if (const auto* m = std::get_if<wire::CreateTables>(&message)) return table_request(*m);
  if (const auto* m = std::get_if<wire::DropTable>(&message)) return table_request(*m);
  if (const auto* m = std::get_if<wire::Leave>(&message)) return registration_.OnLeave(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::GiveUp>(&message)) return answer_if(launcher_.OnGiveUp(conn, *m), 0);
  if (const auto* m = std::get_if<wire::ProcessEnded>(&message))
    return answer_if(launcher_.OnProcessEnded(*m, now_us), 0);
  if (const auto* m = std::get_if<wire::AbortJob>(&message)) return answer_if(launcher_.OnAbort(*m), 0);
  if (const auto* m = std::get_if<wire::StatusRequest>(&message))
    return connections_.Send(conn, wire::StatusReply{m->request, StatusJson(now_us)});
  if (const auto* m = std::get_if<wire::Scale>(&message))
    return answer_if(scale_.OnScale(conn, *m), m->request);
  if (const auto* m = std::get_if<wire::Blocked>(&message)) return deadlocks_.OnBlocked(conn, *m, now_us);
  connections_.Refuse(conn, Code::kProtocol,
                      std::string("a ") + wire::Name(message) + " came to the scheduler's port");
}

void SchedulerCore::OnDisconnect(ConnId conn, int64_t now_us) {
  if (!journal_.ok()) return;
  connections_.OnDisconnect(conn, now_us);
  unsettled_ |= tables_.OnDisconnect(conn);
  Settle(now_us);
}

void SchedulerCore::OnTick(int64_t now_us) {
  if (!journal_.ok()) return;
  detection_.NoticePauses(now_us);
  connections_.CloseLateCallers(now_us);
  detection_.DetectDeaths(now_us);
  detection_.GiveUpAfterGrace(now_us);
  placer_.LookAtTraffic(now_us);
  deadlocks_.OnTick(now_us);
  if (moves_.WorkWaits(now_us)) unsettled_ = true;
  Settle(now_us);
  if (journal_.ok()) teller_.SendToAllBehind(now_us);
}

std::string SchedulerCore::StatusJson(int64_t now_us) {
  return scheduler::StatusJson({options_.lost_after_us, journal_, connections_, presence_, teller_, barriers_,
                                awaiting_, loads_, placer_, news_},
                               now_us);
}

}  // namespace cairn::scheduler

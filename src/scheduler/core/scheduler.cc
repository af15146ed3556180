// Start, commit and dispatch: every change is logged, then installed, then told.
#include "scheduler/core/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "base/random.h"
#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {

// The log starts over when it is larger than its bound, and than a few of its records.
constexpr uint64_t kLogBoundRecords = 8;

std::string MadeClusterId(uint64_t seed) {
  char text[32];
  std::snprintf(text, sizeof text, "cairn-%016llx", static_cast<unsigned long long>(Mix64(seed, 0)));
  return text;
}

Status CheckOptions(const SchedulerOptions& o) {
  if (o.expected_servers == 0 || o.expected_servers > 65535)
    return {Code::kInvalidArgument,
            "a job has 1 to 65535 servers, not " + std::to_string(o.expected_servers)};
  if (o.expected_workers == 0 || o.expected_workers > kMaxRanks)
    return {Code::kInvalidArgument,
            "a job starts with 1 to 65536 workers, not " + std::to_string(o.expected_workers)};
  if (o.slot_count == 0 || o.slot_count > 65536)
    return {Code::kInvalidArgument, "a cluster has 1 to 65536 slots, not " + std::to_string(o.slot_count)};
  if (o.replicas > wire::kMaxBackups)
    return {Code::kInvalidArgument, "a partition has 1 to " + std::to_string(wire::kMaxBackups) +
                                        " replicas (0: chosen), not " + std::to_string(o.replicas)};
  const uint32_t owners = std::min(o.expected_servers, o.replicas == 0 ? 2 : o.replicas);
  if (o.min_in_sync == 0 || o.min_in_sync > owners)
    return {Code::kInvalidArgument,
            "with " + Count(owners, "owner") + " of each partition, at least 1 and at most " +
                std::to_string(owners) + " of them can be asked to be in sync, not " +
                std::to_string(o.min_in_sync) + ": give more servers and replicas, or a smaller number"};
  if (o.cluster_id.size() > 255 || !IsPrintable(o.cluster_id))
    return {Code::kInvalidArgument, "the cluster id is too long or has control characters"};
  if (o.heartbeat_us <= 0 || o.dead_after_us <= 0 || o.rejoin_grace_us < 0 || o.deadlock_after_us < 0)
    return {Code::kInvalidArgument, "heartbeat and dead-after must be above 0"};
  return Status::Ok();
}

// The log belongs to one job: another one must not continue it by mistake.
Status CheckSameJob(const SchedulerOptions& o, const DurableState& d) {
  const wire::ClusterState& state = d.state;
  const std::string what_to_do = ": start with the same, or with another state directory for a new job";
  if (!o.cluster_id.empty() && o.cluster_id != state.cluster_id)
    return {Code::kInvalidArgument,
            "the log is of cluster " + state.cluster_id + ", not " + o.cluster_id + what_to_do};
  if (o.expected_servers != d.initial_servers || o.expected_workers != state.expected_workers)
    return {Code::kInvalidArgument, "the log is of a job with " + Count(d.initial_servers, "server") +
                                        " and " + Count(state.expected_workers, "worker") + what_to_do};
  if (o.slot_count != d.slot_count)
    return {Code::kInvalidArgument,
            "the log is of a cluster with " + Count(d.slot_count, "slot") + what_to_do};
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::Start(const SchedulerOptions& options, MetaStore& store,
                                                    Network& network, BufferPool& pool, int64_t now_us,
                                                    LogLine log, SchedulerObserver* observer) {
  if (!log) log = [](const std::string&) {};
  auto core =
      std::make_unique<SchedulerCore>(options, store, network, pool, now_us, std::move(log), observer);
  if (Status status = core->Init(now_us); !status.ok()) return status;
  return std::unique_ptr<Scheduler>(std::move(core));
}

SchedulerCore::SchedulerCore(const SchedulerOptions& options, MetaStore& store, Network& network,
                             BufferPool& pool, int64_t now_us, LogLine log, SchedulerObserver* observer)
    : options_(options),
      store_(store),
      network_(network),
      pool_(pool),
      log_(std::move(log)),
      observer_(observer),
      hearing_({options.heartbeat_us, options.dead_after_us, std::max(options.lost_after_us, options.dead_after_us)},
               now_us),
      deadlocks_(options.deadlock_after_us, 3 * std::max<int64_t>(options.heartbeat_us, 1'000'000)),
      traffic_(options.traffic),
      last_tick_us_(now_us) {}

Status SchedulerCore::LoadOrCreate() {
  auto records = store_.Load();
  if (!records.ok()) return records.status();
  if (records->empty()) {
    wire::ClusterState& state = durable_.state;
    state.cluster_id =
        options_.cluster_id.empty() ? MadeClusterId(options_.cluster_seed) : options_.cluster_id;
    state.expected_servers = options_.expected_servers;
    state.expected_workers = options_.expected_workers;
    durable_.initial_servers = options_.expected_servers;
    durable_.slot_count = options_.slot_count;
    return Status::Ok();
  }
  for (const auto& record : *records) log_bytes_ += record.size();
  auto last = DecodeRecord(records->back());  // each one is the whole state
  if (!last.ok()) return last.status();
  durable_ = std::move(*last);
  return CheckSameJob(options_, durable_);
}

Status SchedulerCore::Init(int64_t now_us) {
  if (Status status = CheckOptions(options_); !status.ok()) return status;
  if (Status status = LoadOrCreate(); !status.ok()) return status;
  DurableState next = Next();
  const uint32_t replicas_before = next.state.replicas;
  next.state.term = next.state.term.Next();
  next.state.min_in_sync = options_.min_in_sync;
  ExpectServers(next, next.state.expected_servers);
  if (!Commit(std::move(next))) return fatal_;
  for (const NodeRecord& node : durable_.nodes) {
    by_uid_[node.uid] = node.incarnation;
    if (node.fate != NodeFate::kLive) continue;
    live_[node.incarnation];
    hearing_.Expect(node.incarnation, now_us);
  }
  if (durable_.over()) stay_until_us_ = now_us + options_.dead_after_us;
  if (durable_.end_told)
    log_("the job of this log is over, and everybody has been told: a new one needs another place for its state");
  log_("Bind to role=scheduler, id=1, ip=" + options_.endpoint.host +
       ", port=" + std::to_string(options_.endpoint.port));
  if (state().term.value > 1)
    log_("started again, term " + std::to_string(state().term.value) + ": the log has view " +
         std::to_string(state().view.value) + ", " + Count(state().servers.size(), "server") + " and " +
         Count(state().workers.size(), "worker"));
  if (state().term.value > 1 && state().replicas != replicas_before)
    log_("each partition had " + Count(replicas_before, "owner") + " in the log, and is to have " +
         std::to_string(state().replicas) + " from now on (--replicas)");
  Settle(now_us);
  return fatal_;
}

DurableState SchedulerCore::Next() const {
  DurableState next = durable_;
  next.state.version = next.state.version.Next();
  return next;
}

Status SchedulerCore::Persist(const DurableState& next) {
  const std::vector<std::byte> record = EncodeRecord(next);
  const uint64_t bound = std::max(options_.bounds.log_bytes, kLogBoundRecords * record.size());
  if (log_bytes_ + record.size() <= bound) {
    log_bytes_ += record.size();
    return store_.Append(record);
  }
  CAIRN_AT_BOUND(kLogBytes);
  log_bytes_ = record.size();
  return store_.Replace(record);
}

bool SchedulerCore::Commit(DurableState next) {
  if (!fatal_.ok()) return false;
  CAIRN_CHECK(next.state.version == durable_.state.version.Next());
  DropUnusedViews(next.state);
  if (Status status = Persist(next); !status.ok()) {
    fatal_ = status.With("the scheduler's log");
    return false;
  }
  const wire::Phase before = durable_.state.phase;
  durable_ = std::move(next);
  untold_ = unsettled_ = awaiting_stale_ = barrier_stale_ = true;
  if (observer_ != nullptr) observer_->OnState(durable_.state);
  if (durable_.state.phase != before) LogPhase();
  return true;
}

void SchedulerCore::LogPhase() {
  if (durable_.running())
    log_("the scheduler is connected to " + std::to_string(state().workers.size()) + " workers and " +
         std::to_string(state().servers.size()) + " servers");
  if (state().phase == wire::Phase::kEnded)
    log_("the job has ended: " + Count(state().done_ranks.size(), "worker") + " done, " +
         std::to_string(durable_.given_up_ranks.size()) + " given up");
  if (state().phase == wire::Phase::kFailed) log_("the job has failed: " + state().failure);
}

bool SchedulerCore::Advance(int64_t now_us) {
  if (!fatal_.ok() || durable_.over()) return false;
  if (JobIsOver(durable_)) {
    DurableState next = Next();
    EndJob(next);
    return Commit(std::move(next));
  }
  if (ReadyToForm(durable_)) {
    DurableState next = Next();
    Form(next);
    return Commit(std::move(next));
  }
  if (!durable_.running()) return AdvanceOwners(now_us);
  if (state().pending_view != ViewNumber(0))
    return ServersNotHolding().empty() ? MakeView() : AdvanceOwners(now_us);
  if (RunDeferred()) return true;
  const std::vector<uint32_t> waiting = WaitingRanks(state());
  if (waiting.empty()) return AdvanceOwners(now_us);
  DurableState next = Next();
  BeginView(next);
  if (!Commit(std::move(next))) return false;
  log_("view " + std::to_string(state().pending_view.value) + " is being made, for " +
       Listed("rank", waiting));
  return true;
}

bool SchedulerCore::MakeView() {
  const std::vector<uint32_t> waiting = WaitingRanks(state());
  DurableState next = Next();
  std::vector<wire::TableRound> reports;
  for (const wire::ServerInfo& server : state().servers) {
    const Live* live = FindLive(server.incarnation);
    reports.insert(reports.end(), live->open_rounds.begin(), live->open_rounds.end());
  }
  FinishView(next, reports);
  if (CAIRN_BUG(kPickNotLogged)) {
    for (auto& [incarnation, live] : live_)
      if (live.conn != ConnId(0)) Send(live.conn, wire::StateMessage{next.state});
  }
  if (!Commit(std::move(next))) return false;
  log_("view " + std::to_string(state().view.value) + ": " +
       (waiting.empty() ? std::string("nobody") : Listed("rank", waiting)) + " joined");
  return true;
}

void SchedulerCore::Settle(int64_t now_us) {
  while (unsettled_) unsettled_ = Advance(now_us);
  if (!fatal_.ok()) return;
  if (durable_.running() && state().workers.empty()) {
    if (no_workers_since_us_ < 0) no_workers_since_us_ = now_us;
  } else {
    no_workers_since_us_ = -1;
  }
  Broadcast(now_us);
  AnswerTables();
  TellBarrier();
  UpdateFinished(now_us);
}

void SchedulerCore::OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) {
  if (!fatal_.ok()) return;
  auto message =
      frame.header.type == wire::FrameType::kControl
          ? wire::DecodeControl(frame.header, frame.body())
          : Result<wire::ControlMessage>(Code::kProtocol, "a data frame came to the scheduler's port");
  if (!message.ok()) {
    Refuse(conn, Code::kProtocol, message.status().message(), frame.header.request_id);
    Unbind(conn, now_us);
    callers_.Forget(conn);
    network_.Close(conn);
    return;
  }
  Handle(conn, *message, now_us);
  NoteCaller(conn, now_us);
  Settle(now_us);
}

void SchedulerCore::Handle(ConnId conn, const wire::ControlMessage& message, int64_t now_us) {
  if (const auto* m = std::get_if<wire::Heartbeat>(&message)) return OnHeartbeat(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::Register>(&message)) return OnRegister(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::CreateTable>(&message))
    return OnTableRequest(conn, m->incarnation, m->request, *m);
  if (const auto* m = std::get_if<wire::CreateTables>(&message))
    return OnTableRequest(conn, m->incarnation, m->request, *m);
  if (const auto* m = std::get_if<wire::DropTable>(&message))
    return OnTableRequest(conn, m->incarnation, m->request, *m);
  if (const auto* m = std::get_if<wire::Leave>(&message)) return OnLeave(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::GiveUp>(&message)) return OnGiveUp(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::ProcessEnded>(&message)) return OnProcessEnded(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::AbortJob>(&message)) return OnAbort(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::StatusRequest>(&message))
    return Send(conn, wire::StatusReply{m->request, StatusJson(now_us)});
  if (const auto* m = std::get_if<wire::Scale>(&message)) return OnScale(conn, *m, now_us);
  if (const auto* m = std::get_if<wire::Blocked>(&message)) return OnBlocked(conn, *m, now_us);
  Refuse(conn, Code::kProtocol, std::string("a ") + wire::Name(message) + " came to the scheduler's port");
}

void SchedulerCore::OnDisconnect(ConnId conn, int64_t now_us) {
  if (!fatal_.ok()) return;
  Unbind(conn, now_us);
  callers_.Forget(conn);
  const auto gone = [&](const auto& entry) { return entry.second.conn == conn; };
  unsettled_ |= std::erase_if(requests_, gone) > 0;  // others may have waited for their records
  Settle(now_us);
}

}  // namespace cairn::scheduler

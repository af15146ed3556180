// The driver's events, calls to the scheduler, and what a new state means.
#include "client/protocol/core.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace cairn::client {
namespace {
// A heartbeat's late refusal may overtake the answer to Leave; so many can't.
constexpr uint32_t kRefusalsWhileLeaving = 3;
}  // namespace

std::unique_ptr<ClientCore> ClientCore::Make(const ClientCoreOptions& options, Network& network,
                                             BufferPool& pool, LogLine log, int64_t now_us,
                                             ClientObserver* observer) {
  return std::make_unique<Core>(options, network, pool, std::move(log), now_us, observer);
}

Core::Core(const ClientCoreOptions& options, Network& network, BufferPool& pool, LogLine log, int64_t now_us,
           ClientObserver* observer)
    : options_(options),
      network_(network),
      pool_(pool),
      log_(log ? std::move(log) : [](const std::string&) {}),
      observer_(observer),
      scheduler_(options_, network, pool, *this),
      calls_(options_, scheduler_, completions_),
      log_us_(now_us + options.still_waiting_log_us) {}

void Core::OnConnected(ConnId conn, int64_t now_us) {
  if (scheduler_.Owns(conn)) {
    scheduler_.OnConnected(conn, now_us);
  } else if (auto it = by_conn_.find(conn); it != by_conn_.end()) {
    it->second->OnConnected(now_us);
  }
  Settle(now_us);
}

void Core::OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) {
  if (scheduler_.Owns(conn)) {
    scheduler_.OnMessage(conn, frame, now_us);
  } else if (auto it = by_conn_.find(conn); it != by_conn_.end()) {
    it->second->OnMessage(frame, now_us);
    TakePassedState(now_us);
  }
  Settle(now_us);
}

void Core::OnDisconnect(ConnId conn, int64_t now_us) {
  if (scheduler_.Owns(conn)) {
    scheduler_.OnDisconnect(conn, now_us);
  } else if (auto it = by_conn_.find(conn); it != by_conn_.end()) {
    it->second->OnDisconnect(now_us);
  }
  Settle(now_us);
}

uint64_t Core::MostBodyBytes(ConnId conn, const wire::FrameHeader& header) const {
  const auto it = by_conn_.find(conn);
  return it == by_conn_.end() ? wire::MostControlBytes(header) : it->second->MostBodyBytes(header);
}

void Core::OnTick(int64_t now_us) {
  scheduler_.OnTick(now_us);
  for (Links::Place& place : links_.all()) place.link->OnTick(now_us);
  AskForState(now_us);
  CompareStates(now_us);
  CheckDeadlines(now_us);
  LogSlotsMoved(now_us);
  LogWaiting(now_us);
  ReportBlocked(now_us);
  Settle(now_us);
}

void Core::Settle(int64_t now_us) {
  if (fatal_.ok()) {
    SettleStart(now_us);
    calls_.Settle(requests_.empty(), now_us);
  }
  completions_.Run();
}

void Core::Start(int64_t deadline_us, Done done, int64_t now_us) {
  if (Status s = Closed(); !s.ok() || start_) {
    if (s.ok()) s = {Code::kInvalidArgument, "the client is being started already"};
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    start_ = StartCall{deadline_us, now_us + kStartLogUs, std::move(done)};
    scheduler_.Start(now_us);
  }
  Settle(now_us);
}

void Core::CreateTable(const TableSpec& spec, int64_t deadline_us, TableDone done, int64_t now_us) {
  if (Status s = Closed(); !s.ok()) {
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    calls_.CreateTable(spec, deadline_us, std::move(done), now_us);
  }
  Settle(now_us);
}

void Core::CreateTables(std::vector<TableSpec> specs, int64_t deadline_us, TablesDone done, int64_t now_us) {
  if (Status s = Closed(); !s.ok()) {
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    calls_.CreateTables(std::move(specs), deadline_us, std::move(done), now_us);
  }
  Settle(now_us);
}

void Core::DropTable(const std::string& name, int64_t deadline_us, Done done, int64_t now_us) {
  if (Status s = Closed(); !s.ok()) {
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    calls_.DropTable(name, deadline_us, std::move(done), now_us);
  }
  Settle(now_us);
}

void Core::Barrier(int64_t deadline_us, Done done, int64_t now_us) {
  if (Status s = Closed(); !s.ok()) {
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    calls_.Barrier(deadline_us, std::move(done), now_us);
  }
  Settle(now_us);
}

void Core::Leave(int64_t deadline_us, Done done, int64_t now_us) {
  if (const Status& s = fatal_; !s.ok()) {
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    calls_.Leave(deadline_us, std::move(done), now_us);
  }
  Settle(now_us);
}

Status Core::Closed() const {
  if (!fatal_.ok()) return fatal_;
  if (calls_.leaving()) return {Code::kInvalidArgument, "this worker is leaving the job"};
  return Status::Ok();
}

void Core::OnRegistered(int64_t) {}

void Core::OnReply(const wire::ControlMessage& message, int64_t now_us) {
  if (const auto* deadlock = std::get_if<wire::Deadlock>(&message)) return OnDeadlock(*deadlock, now_us);
  calls_.OnReply(message, now_us);
  if (calls_.left() && fatal_.ok()) EndEverything({Code::kInvalidArgument, "this worker has left the job"});
}

void Core::OnRefused(Status why, int64_t) {
  // Who has left is no longer listed either; the answer to Leave is on its way.
  const bool maybe_left = why.code() == Code::kRetired && calls_.leave_sent();
  if (maybe_left && ++retired_while_leaving_ < kRefusalsWhileLeaving) return;
  EndEverything(std::move(why));
}

void Core::OnLinkFatal(Status why, int64_t now_us) {
  why.code() == Code::kRetired ? OnRefused(std::move(why), now_us) : EndEverything(std::move(why));
}

void Core::OnNewState(int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  const wire::WorkerInfo* self = state->FindWorker(scheduler_.incarnation());
  const bool gone = self == nullptr && state->next_incarnation > scheduler_.incarnation();
  if (gone && calls_.leave_sent() &&
      std::binary_search(state->done_ranks.begin(), state->done_ranks.end(), scheduler_.rank().value)) {
    calls_.OnLeft();
    return EndEverything({Code::kInvalidArgument, "this worker has left the job"});
  }
  if (state->phase == wire::Phase::kFailed) return EndEverything({Code::kJobFailed, state->failure});
  if (gone) {
    return EndEverything({Code::kRetired, "rank " + std::to_string(scheduler_.rank().value) +
                                              " was declared dead by the scheduler (incarnation " +
                                              std::to_string(scheduler_.incarnation().value) +
                                              "): restart the process"});
  }
  if (state->phase == wire::Phase::kEnded) return EndEverything({Code::kJobFailed, "the job has ended"});
  if (joined_ == nullptr && self != nullptr && self->join_view.value != 0) {
    joined_ = state;
    self_ = *self;
  }
  std::erase_if(orders_, [&](const auto& item) {
    return item.second.idle() && state->FindTable(item.first) == nullptr;
  });
  book_.state_version = state->version.value;
  if (state->phase != wire::Phase::kRunning) return;
  FollowMap(now_us);
  FinishCovered(now_us);
}

wire::NodeStats Core::Stats() const {
  wire::NodeStats stats;
  stats.pushes = pushes_;
  stats.pulls = pulls_;
  stats.rounds = rounds_;
  stats.connections = static_cast<uint64_t>(
      std::count_if(links_.all().begin(), links_.all().end(),
                    [](const Links::Place& place) { return place.link->ready(); }));
  return stats;
}

}  // namespace cairn::client

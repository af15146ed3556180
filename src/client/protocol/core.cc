#include "client/protocol/core.h"

#include <algorithm>
#include <optional>
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
      log_(log ? std::move(log) : [](const std::string&) {}),
      observer_(observer),
      scheduler_(options_, network, pool, *this),
      links_(options_, network, pool, book_, *this),
      newest_(scheduler_, links_, book_),
      words_(scheduler_, links_),
      calls_(options_, scheduler_, completions_),
      start_(log_, words_, completions_),
      requests_(options_, scheduler_, links_, book_, newest_, words_, completions_, observer, log_, pool),
      blocked_(options_, scheduler_, calls_, requests_.table(), requests_.bound(), words_),
      waiting_log_(log_, options.still_waiting_log_us, requests_.table(), calls_, words_, now_us) {}

void Core::OnConnected(ConnId conn, int64_t now_us) {
  if (scheduler_.Owns(conn)) {
    scheduler_.OnConnected(conn, now_us);
  } else if (ShardLink* link = links_.OfConn(conn)) {
    link->OnConnected(now_us);
  }
  Settle(now_us);
}

void Core::OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) {
  if (scheduler_.Owns(conn)) {
    scheduler_.OnMessage(conn, frame, now_us);
  } else if (ShardLink* link = links_.OfConn(conn)) {
    link->OnMessage(frame, now_us);
    if (auto passed = newest_.TakePassed(); passed && fatal_.ok()) scheduler_.TakePassed(*passed, now_us);
  }
  Settle(now_us);
}

void Core::OnDisconnect(ConnId conn, int64_t now_us) {
  if (scheduler_.Owns(conn)) {
    scheduler_.OnDisconnect(conn, now_us);
  } else if (ShardLink* link = links_.OfConn(conn)) {
    link->OnDisconnect(now_us);
  }
  Settle(now_us);
}

uint64_t Core::MostBodyBytes(ConnId conn, const wire::FrameHeader& header) const {
  const ShardLink* link = links_.OfConn(conn);
  return link == nullptr ? wire::MostControlBytes(header) : link->MostBodyBytes(header);
}

void Core::OnTick(int64_t now_us) {
  scheduler_.OnTick(now_us);
  for (Links::Place& place : links_.all()) place.link->OnTick(now_us);
  newest_.Ask(now_us);
  if (fatal_.ok()) newest_.Compare(now_us);
  requests_.OnTick(now_us);
  if (!start_.under_way()) waiting_log_.OnTick(now_us);
  blocked_.OnTick(!start_.under_way() && fatal_.ok(), now_us);
  Settle(now_us);
}

void Core::Settle(int64_t now_us) {
  if (fatal_.ok()) {
    start_.Settle(requests_.turns().in_view(), links_.ready(), now_us);
    calls_.Settle(requests_.table().empty(), now_us);
  }
  completions_.Run();
}

void Core::Start(int64_t deadline_us, Done done, int64_t now_us) {
  if (Status s = Closed(); !s.ok() || start_.under_way()) {
    if (s.ok()) s = {Code::kInvalidArgument, "the client is being started already"};
    completions_.Add([done = std::move(done), s] { done(s); });
  } else {
    start_.Begin(deadline_us, std::move(done), now_us);
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

void Core::Submit(Request request, int64_t now_us) {
  requests_.Submit(std::move(request), Closed(), now_us);
  Settle(now_us);
}

void Core::SubmitInTurns(Request push, Request pull, int64_t now_us) {
  if (requests_.SubmitInTurns(push, pull, Closed(), now_us)) return Settle(now_us);
  Submit(std::move(push), now_us);
  Submit(std::move(pull), now_us);
}

void Core::EndStep(TableId table, bool last, int64_t now_us) {
  if (Closed().ok()) requests_.EndStep(table, last, now_us);
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

void Core::OnReply(const wire::ControlMessage& message, int64_t now_us) {
  if (const auto* deadlock = std::get_if<wire::Deadlock>(&message)) return OnDeadlock(*deadlock, now_us);
  calls_.OnReply(message, now_us);
  if (calls_.left() && fatal_.ok()) EndEverything({Code::kInvalidArgument, "this worker has left the job"});
}

// They end as at their deadline: this worker's parts of rounds stay, it is in the barrier as before, and
// has not left.
void Core::OnDeadlock(const wire::Deadlock& message, int64_t now_us) {
  if (start_.under_way() || !fatal_.ok() || !blocked_.IsAbout(message, now_us)) return;
  requests_.ExpireAll(message.text, now_us);
  calls_.EndBarriers({Code::kDeadlineExceeded, message.text});
  calls_.EndLeave({Code::kDeadlineExceeded, message.text});
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

Status Core::EndOf(const wire::ClusterState& state, const wire::WorkerInfo* self) {
  const bool gone = self == nullptr && state.next_incarnation > scheduler_.incarnation();
  if (gone && calls_.leave_sent() &&
      std::binary_search(state.done_ranks.begin(), state.done_ranks.end(), scheduler_.rank().value)) {
    calls_.OnLeft();
    return {Code::kInvalidArgument, "this worker has left the job"};
  }
  if (state.phase == wire::Phase::kFailed) return {Code::kJobFailed, state.failure};
  if (gone) {
    return {Code::kRetired, "rank " + std::to_string(scheduler_.rank().value) +
                                " was declared dead by the scheduler (incarnation " +
                                std::to_string(scheduler_.incarnation().value) + "): restart the process"};
  }
  if (state.phase == wire::Phase::kEnded) return {Code::kJobFailed, "the job has ended"};
  return Status::Ok();
}

void Core::OnNewState(int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  const wire::WorkerInfo* self = state->FindWorker(scheduler_.incarnation());
  if (Status end = EndOf(*state, self); !end.ok()) return EndEverything(std::move(end));
  requests_.OnNewState(state, self);
  book_.state_version = state->version.value;
  if (state->phase == wire::Phase::kRunning) requests_.FollowMap(now_us);
}

wire::NodeStats Core::Stats() const {
  wire::NodeStats stats;
  stats.pushes = requests_.pushes();
  stats.pulls = requests_.pulls();
  stats.rounds = requests_.rounds();
  stats.connections = links_.ready_count();
  return stats;
}

ShardLink::Verdict Core::OnValues(const Outgoing& frame, const Answer& answer,
                                  const wire::ValuesView& values) {
  return requests_.OnValues(frame, answer, values);
}

void Core::OnApplied(SlotId slot, Seq seq) {
  if (observer_ != nullptr) observer_->OnAcknowledged(slot, incarnation(), seq);
}

void Core::OnFrameEnd(const Outgoing& frame, const Status& outcome, const Answer& answer, int64_t now_us) {
  requests_.OnFrameEnd(frame, outcome, answer, now_us);
}

void Core::OnNewerState(StateVersion version, int64_t now_us) { newest_.Want(version, now_us); }

void Core::OnStateOf(ShardLink& link, wire::ControlMessage& message) { newest_.OnStateOf(link, message); }

void Core::OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message) {
  requests_.OnStillWaiting(frame, message);
}

void Core::Cancel(int64_t) {
  if (fatal_.ok()) EndEverything({Code::kCancelled, "the client was closed while the call was under way"});
  completions_.Run();
}

void Core::EndEverything(Status why) {
  if (!fatal_.ok()) return;
  fatal_ = std::move(why);
  // Connections first: none of them may read a caller's memory after its call has ended.
  for (Links::Place& place : links_.all()) place.link->Stop();
  scheduler_.Stop();
  requests_.EndAll(fatal_);
  calls_.EndAll(fatal_);
  start_.End(fatal_);
}

}  // namespace cairn::client

#include "client/scheduler_link.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>


namespace cairn::client {
namespace {
constexpr size_t kMaxSlots = 65536;
constexpr uint32_t kMaxThreads = 1024;
constexpr int32_t kNoRank = 65536;  // above every rank
}  // namespace

Status CheckState(const wire::ClusterState& state) {
  const auto bad = [](const char* what) {
    return Status(Code::kProtocol, std::string("bad state: ") + what);
  };
  if (state.slots.size() > kMaxSlots) return bad("too many slots");
  if (state.slots.empty()) return state.phase == wire::Phase::kRunning ? bad("no slots") : Status::Ok();
  std::vector<uint32_t> threads;  // by index of the server; 0: there is none
  for (const wire::ServerInfo& server : state.servers) {
    // Ascending; those of servers that are gone may be missing.
    if (server.index < threads.size() || server.index >= wire::kNoServer) return bad("server indexes");
    if (server.threads == 0 || server.threads > kMaxThreads) return bad("threads of a server");
    threads.resize(server.index + 1);
    threads[server.index] = server.threads;
  }
  for (const wire::SlotOwner& owner : state.slots) {
    if (owner.server >= threads.size() || owner.thread >= threads[owner.server]) {
      return bad("a slot's owner");
    }
  }
  return Status::Ok();
}

SchedulerLink::SchedulerLink(const ClientCoreOptions& options, Network& network, BufferPool& pool,
                             Owner& owner)
    : options_(options),
      network_(network),
      pool_(pool),
      owner_(owner),
      backoff_(options.reconnect_min_us, options.reconnect_max_us, Mix64(options.seed, 1)),
      cluster_id_(options.cluster_id),
      state_(std::make_shared<const wire::ClusterState>()) {
  schedulers_ = options.schedulers;
  if (schedulers_.empty()) schedulers_ = {options.scheduler};
}

void SchedulerLink::Start(int64_t now_us) {
  if (phase_ != Phase::kOff) return;
  heard_us_ = now_us;
  Connect(now_us);
}

void SchedulerLink::Stop() {
  if (conn_.value != 0) network_.Close(conn_);
  conn_ = {};
  phase_ = Phase::kOff;
  heartbeats_ = false;
}

void SchedulerLink::Connect(int64_t now_us) {
  phase_ = Phase::kConnecting;
  since_us_ = now_us;
  conn_ = network_.Connect(schedulers_[at_]);
}

void SchedulerLink::Reopen(int64_t now_us) {
  if (conn_.value != 0) network_.Close(conn_);
  OnDisconnect(now_us);
}

// Whoever answers next is the leader, or says that it is not.
void SchedulerLink::OnDisconnect(int64_t now_us) {
  conn_ = {};
  phase_ = Phase::kWaiting;
  at_ = (at_ + 1) % schedulers_.size();
  // The back-off is between rounds of the list: a leader that has just won waits for us only so long.
  retry_us_ = now_us + (at_ == 0 ? backoff_.Next() : options_.reconnect_min_us);
}

void SchedulerLink::OnConnected(int64_t now_us) {
  if (phase_ != Phase::kConnecting) return;
  phase_ = Phase::kUp;
  since_us_ = now_us;
  ++connection_number_;
  Say(now_us);
}

void SchedulerLink::Say(int64_t now_us) {
  registered() && !register_again_ ? Heartbeat(now_us) : SendRegister(now_us);
}

void SchedulerLink::OnTick(int64_t now_us) {
  switch (phase_) {
    case Phase::kOff: return;
    case Phase::kWaiting:
      if (now_us >= retry_us_) Connect(now_us);
      return;
    case Phase::kConnecting:
      if (now_us - since_us_ >= options_.resend_after_us) Reopen(now_us);
      return;
    case Phase::kUp: break;
  }
  if (now_us - std::max(heard_us_, since_us_) >=
      std::max(options_.resend_after_us, 2 * options_.heartbeat_us)) {
    return Reopen(now_us);
  }
  if (now_us >= beat_us_) Say(now_us);
}

void SchedulerLink::Send(const wire::ControlMessage& message) {
  if (phase_ == Phase::kUp) network_.Send(conn_, wire::EncodeControl(message, pool_));
}

void SchedulerLink::SendRegister(int64_t now_us) {
  beat_us_ = now_us + options_.heartbeat_us;
  wire::Register message;
  message.cluster_id = cluster_id_;
  message.role = wire::Role::kWorker;
  message.uid = options_.uid;
  message.endpoint = {options_.host, 0};
  // To be known again, not to be taken in: as a newcomer it would replace whoever has its rank now.
  message.wanted_rank = registered() ? kNoRank : options_.wanted_rank;
  Send(message);
}

void SchedulerLink::Heartbeat(int64_t now_us) {
  beat_us_ = now_us + options_.heartbeat_us;
  if (!heartbeats_ || !registered()) return;
  wire::Heartbeat message;
  message.incarnation = incarnation_;
  message.uid = options_.uid;
  message.version = state_->version;
  message.barrier_count = barrier_base_ + barriers_entered_;
  message.stats = owner_.Stats();
  Send(message);
}

uint64_t SchedulerLink::EnterBarrier(int64_t now_us) {
  ++barriers_entered_;
  Heartbeat(now_us);
  return barriers_entered_;
}

void SchedulerLink::OnMessage(const wire::InFrame& frame, int64_t now_us) {
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) return Reopen(now_us);  // not what a scheduler says
  if (!StandsBy(*message)) {
    heard_us_ = now_us;
    ever_heard_ = true;
  }
  if (auto* m = std::get_if<wire::Registered>(&*message)) return Take(*m, now_us);
  if (auto* m = std::get_if<wire::HeartbeatReply>(&*message)) return Take(*m, now_us);
  if (auto* m = std::get_if<wire::StateMessage>(&*message)) return Take(*m, now_us);
  if (auto* m = std::get_if<wire::StateDelta>(&*message)) {
    // One that does not fit is made good by the answer to the next heartbeat.
    auto state = wire::Apply(*state_, *m);
    if (!state.ok()) return;
    wire::StateMessage whole{std::move(*state)};
    return Take(whole, now_us);
  }
  if (auto* m = std::get_if<wire::Refusal>(&*message)) return Take(*m, now_us);
  const bool reply = std::holds_alternative<wire::TableReply>(*message) ||
                     std::holds_alternative<wire::LeaveReply>(*message);
  if (reply) owner_.OnReply(*message, now_us);
}

// Another one leads, if there is another one.
bool SchedulerLink::StandsBy(const wire::ControlMessage& message) const {
  const auto* refusal = std::get_if<wire::Refusal>(&message);
  return refusal != nullptr && refusal->request == 0 && refusal->code == Code::kUnavailable &&
         schedulers_.size() > 1;
}

// A leader of an older term has nothing to say any more.
bool SchedulerLink::TakeTerm(Term term) {
  if (term < term_) return false;
  term_ = term;
  return true;
}

void SchedulerLink::EndForLostLog(const std::string& what, int64_t now_us) {
  owner_.OnRefused({Code::kProtocol, Named() + " " + what + ": was its log lost? It goes on with its cluster "
                                      "only if it is started again with the same --state-dir"}, now_us);
}

void SchedulerLink::Take(const wire::Registered& message, int64_t now_us) {
  if (message.uid != options_.uid || message.incarnation.value == 0) return;
  // No scheduler gives two to the same worker, of whatever term: its records are gone.
  if (registered() && message.incarnation != incarnation_ && message.cluster_id == cluster_id_) {
    return EndForLostLog("knew this worker as incarnation " + std::to_string(incarnation_.value) +
                             " and now calls it " + std::to_string(message.incarnation.value),
                         now_us);
  }
  if (!TakeTerm(message.term)) {
    if (schedulers_.size() > 1) Reopen(now_us);
    return;
  }
  if (std::exchange(register_again_, false)) Heartbeat(now_us);
  if (registered()) return;
  if (!options_.cluster_id.empty() && message.cluster_id != options_.cluster_id) {
    return owner_.OnRefused({Code::kProtocol, Named() +
                                                  " belongs to cluster \"" + message.cluster_id +
                                                  "\", not \"" + options_.cluster_id + "\""},
                            now_us);
  }
  backoff_.Reset();
  cluster_id_ = message.cluster_id;
  incarnation_ = message.incarnation;
  rank_ = Rank{message.rank};
  barrier_base_ = message.barrier_base;
  last_refusal_.clear();
  owner_.OnRegistered(now_us);
  Heartbeat(now_us);
}

void SchedulerLink::Take(const wire::HeartbeatReply& message, int64_t now_us) {
  if (!registered()) return;
  if (!TakeTerm(message.term)) {  // it has been replaced and does not know it yet
    if (schedulers_.size() > 1) Reopen(now_us);
    return;
  }
  backoff_.Reset();
  awaiting_ = message.awaiting;
  blocked_ = message.blocked_slots > 0;
  // After its restart a scheduler counts from what it has heard: what is open stays open.
  barrier_open_ = std::max(barrier_open_, message.barrier_open);
}

void SchedulerLink::Take(wire::StateMessage& message, int64_t now_us) {
  wire::ClusterState& state = message.state;
  if (!registered() || state.cluster_id != cluster_id_ || !TakeTerm(state.term)) return;
  if (state.version <= state_->version) return;
  if (!CheckState(state).ok()) return;
  if (!state_->slots.empty() && state.slots.size() != state_->slots.size()) return;
  state_ = std::make_shared<const wire::ClusterState>(std::move(state));
  owner_.OnNewState(now_us);
  Heartbeat(now_us);  // it has the version
}

void SchedulerLink::Take(const wire::Refusal& message, int64_t now_us) {
  if (message.request != 0) return owner_.OnReply(message, now_us);
  last_refusal_ = message.text;
  // One that does not know this worker says so too: it answers who it is when it is told who we are.
  if (message.code == Code::kUnavailable && registered()) register_again_ = true;
  if (StandsBy(message)) return Reopen(now_us);
  if (message.code == Code::kUnavailable) return;  // the timer tries again
  const bool unknown = registered() && register_again_ && message.code == Code::kInvalidArgument;
  if (registered() && (unknown || message.code == Code::kProtocol)) {
    // The others may still be ours, and one that was replaced does not know who came later.
    if (schedulers_.size() > 1) return Reopen(now_us);
    if (!unknown) return owner_.OnRefused({message.code, Named() + " is another one now: " + message.text}, now_us);
    return EndForLostLog("does not know this worker, which was rank " + std::to_string(rank_.value), now_us);
  }
  owner_.OnRefused({message.code, message.text}, now_us);
}

std::string SchedulerLink::Named() const {
  std::string text = "the scheduler at ";
  for (size_t i = 0; i < schedulers_.size(); ++i)
    text += (i == 0 ? "" : " or ") + wire::ToString(schedulers_[i]);
  return text;
}

bool SchedulerLink::Silent(int64_t now_us) const {
  return now_us - heard_us_ >= 2 * options_.heartbeat_us + options_.resend_after_us;
}

std::string SchedulerLink::Awaiting(int64_t now_us) const {
  if (!ever_heard_) {
    return "no answer from " + Named() + " yet" +
           (last_refusal_.empty() ? "" : ": " + last_refusal_);
  }
  if (!registered()) {
    return Named() + " has not registered this worker yet" +
           (last_refusal_.empty() ? "" : ": " + last_refusal_);
  }
  if (Silent(now_us)) {
    return "no answer from " + Named() + " for " +
           std::to_string((now_us - heard_us_) / 1'000'000) + " s";
  }
  return awaiting_;
}

}  // namespace cairn::client

#include "client/links/scheduler_link.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/planted.h"
#include "base/random.h"
#include "client/links/check_state.h"

namespace cairn::client {
namespace {
constexpr int32_t kNoRank = 65536;  // above every rank
}  // namespace

SchedulerLink::SchedulerLink(const ClientCoreOptions& options, Network& network, BufferPool& pool,
                             Listener& listener)
    : options_(options),
      listener_(listener),
      link_({.places = options.schedulers.empty() ? std::vector{options.scheduler} : options.schedulers,
             .heartbeat_us = options.heartbeat_us,
             .soonest_us = options.reconnect.min_us,
             .seed = Mix64(options.seed, 1)},
            network, pool),
      cluster_id_(options.cluster_id),
      state_(std::make_shared<const wire::ClusterState>()) {}

void SchedulerLink::Start(int64_t now_us) {
  if (on_) return;
  on_ = true;
  heard_us_ = now_us;
  link_.Start(now_us);
}

void SchedulerLink::Stop() {
  link_.Close();
  on_ = heartbeats_ = false;
}

void SchedulerLink::OnConnected(ConnId conn, int64_t now_us) {
  if (link_.OnConnected(conn, now_us)) Say(now_us);
}

void SchedulerLink::OnDisconnect(ConnId conn, int64_t now_us) {
  if (link_.OnDisconnect(conn, now_us)) link_.DialAgain(now_us);
}

void SchedulerLink::Say(int64_t now_us) {
  registered() && !register_again_ ? Heartbeat(now_us) : SendRegister(now_us);
}

void SchedulerLink::OnTick(int64_t now_us) {
  if (!on_) return;
  link_.OnTick(now_us);
  if (connected() && now_us >= beat_us_) Say(now_us);
}

void SchedulerLink::SendRegister(int64_t now_us) {
  beat_us_ = now_us + link_.heartbeat_us();
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
  beat_us_ = now_us + link_.heartbeat_us();
  if (!heartbeats_ || !registered()) return;
  wire::Heartbeat message;
  message.incarnation = incarnation_;
  message.uid = options_.uid;
  message.version = state_->version;
  message.barrier_count = barrier_count();
  message.stats = listener_.Stats();
  message.staleness = listener_.Staleness();
  Send(message);
}

uint64_t SchedulerLink::EnterBarrier(int64_t now_us) {
  ++barriers_entered_;
  Heartbeat(now_us);
  return barriers_entered_;
}

void SchedulerLink::OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) {
  if (!link_.Is(conn)) return;
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) return link_.Drop(now_us);  // not what a scheduler says
  if (!StandsBy(*message)) {
    heard_us_ = now_us;
    ever_heard_ = true;
    link_.OnHeard(now_us);
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
                     std::holds_alternative<wire::LeaveReply>(*message) ||
                     std::holds_alternative<wire::Deadlock>(*message);
  if (reply) listener_.OnReply(*message, now_us);
}

// Another one leads, if there is another one.
bool SchedulerLink::StandsBy(const wire::ControlMessage& message) const {
  const auto* refusal = std::get_if<wire::Refusal>(&message);
  return refusal != nullptr && refusal->request == 0 && refusal->code == Code::kUnavailable &&
         link_.several();
}

// A leader of an older term has nothing to say any more.
bool SchedulerLink::TakeTerm(Term term) {
  if (term < term_ && !CAIRN_BUG(kOldTermAccepted)) return false;
  term_ = term;
  return true;
}

void SchedulerLink::EndForLostLog(const std::string& what, int64_t now_us) {
  listener_.OnRefused({Code::kProtocol, Named() + " " + what +
                                            ": was its log lost? It goes on with its cluster "
                                            "only if it is started again with the same --state-dir"},
                      now_us);
}

void SchedulerLink::Take(const wire::Registered& message, int64_t now_us) {
  if (message.uid != options_.uid || message.incarnation.value == 0) return;
  // No scheduler gives two to the same worker, of whatever term: its records are gone.
  if (registered() && message.incarnation != incarnation_ && message.cluster_id == cluster_id_) {
    return EndForLostLog("knew this worker as incarnation " + std::to_string(incarnation_.value) +
                             " and now calls it " + std::to_string(message.incarnation.value),
                         now_us);
  }
  if (!TakeTerm(message.term)) return link_.LeaveForAnother(now_us);
  if (std::exchange(register_again_, false)) Heartbeat(now_us);
  if (registered()) return;
  if (!options_.cluster_id.empty() && message.cluster_id != options_.cluster_id) {
    return listener_.OnRefused({Code::kProtocol, Named() + " belongs to cluster \"" + message.cluster_id +
                                                     "\", not \"" + options_.cluster_id + "\""},
                               now_us);
  }
  link_.OnLed();
  TakeHeartbeat(message.heartbeat_ms);
  cluster_id_ = message.cluster_id;
  incarnation_ = message.incarnation;
  rank_ = Rank{message.rank};
  barrier_base_ = message.barrier_base;
  last_refusal_.clear();
  listener_.OnRegistered(now_us);
  Heartbeat(now_us);
}

// The scheduler knows how often it wants to hear of its nodes; one of an older version says nothing.
void SchedulerLink::TakeHeartbeat(uint32_t heartbeat_ms) {
  if (heartbeat_ms == 0) return;
  link_.SetHeartbeat(int64_t{heartbeat_ms} * 1000);
}

void SchedulerLink::Take(const wire::HeartbeatReply& message, int64_t now_us) {
  if (!registered()) return;
  // Of an older term: it has been replaced and does not know it yet.
  if (!TakeTerm(message.term)) return link_.LeaveForAnother(now_us);
  link_.OnLed();
  TakeHeartbeat(message.heartbeat_ms);
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
  listener_.OnNewState(now_us);
  Heartbeat(now_us);  // it has the version
}

void SchedulerLink::Take(const wire::Refusal& message, int64_t now_us) {
  if (message.request != 0) return listener_.OnReply(message, now_us);
  last_refusal_ = message.text;
  // One that does not know this worker says so too: it answers who it is when it is told who we are.
  if (message.code == Code::kUnavailable && registered()) register_again_ = true;
  if (StandsBy(message)) return link_.Drop(now_us);
  if (message.code == Code::kUnavailable) return;  // the timer tries again
  const bool unknown = registered() && register_again_ && message.code == Code::kInvalidArgument;
  if (registered() && (unknown || message.code == Code::kProtocol)) {
    // The others may still be ours, and one that was replaced does not know who came later.
    if (link_.several()) return link_.Drop(now_us);
    if (!unknown)
      return listener_.OnRefused({message.code, Named() + " is another one now: " + message.text}, now_us);
    return EndForLostLog("does not know this worker, which was rank " + std::to_string(rank_.value), now_us);
  }
  listener_.OnRefused({message.code, message.text}, now_us);
}

std::string SchedulerLink::Named() const {
  std::string text = "the scheduler at ";
  for (size_t i = 0; i < link_.places().size(); ++i)
    text += (i == 0 ? "" : " or ") + wire::ToString(link_.places()[i]);
  return text;
}

bool SchedulerLink::Silent(int64_t now_us) const {
  return now_us - heard_us_ >= 2 * link_.heartbeat_us() + options_.resend_after_us;
}

bool SchedulerLink::Quiet(int64_t now_us) const {
  return registered() && now_us - heard_us_ >= LeaderLink::kSilentHeartbeats * link_.heartbeat_us();
}

std::string SchedulerLink::Awaiting(int64_t now_us) const {
  if (!ever_heard_) {
    std::string why = last_refusal_;
    if (why.empty() && options_.unknown_host) why = options_.unknown_host();
    return "no answer from " + Named() + " yet" + (why.empty() ? "" : ": " + why);
  }
  if (!registered()) {
    return Named() + " has not registered this worker yet" +
           (last_refusal_.empty() ? "" : ": " + last_refusal_);
  }
  if (Silent(now_us)) {
    return "no answer from " + Named() + " for " + std::to_string((now_us - heard_us_) / 1'000'000) + " s";
  }
  return awaiting_;
}

}  // namespace cairn::client

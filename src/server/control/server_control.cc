// Registration with the scheduler, heartbeats, states to the shards, and the end of the job. Everything is
// repeated until it is answered; only the scheduler's word or a long silence ends a server. It leaves an
// ended job when every one of its shards has seen the end and the scheduler has been told
// (docs/internals/consistency.md, rule 10).
#include "server/control/server_control.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/planted.h"
#include "server/control/server_reports.h"
#include "transport/link/leader_link.h"

namespace cairn::server {
namespace {
// A server that waits for its scheduler says so.
constexpr int64_t kFirstWaitingLogUs = 2'000'000;
constexpr int64_t kWaitingLogEveryUs = 10'000'000;
// How long the end is repeated to a scheduler that does not hang up.
constexpr int64_t kEndPatienceUs = 3'000'000;

std::string Seconds(int64_t us) { return std::to_string(us / 1'000'000) + " s"; }

std::vector<wire::Endpoint> Places(const ServerControlOptions& options) {
  std::vector<wire::Endpoint> places{options.scheduler};
  places.insert(places.end(), options.standbys.begin(), options.standbys.end());
  return places;
}

bool Over(const wire::ClusterState& state) {
  return state.phase == wire::Phase::kEnded || state.phase == wire::Phase::kFailed;
}

class ServerControlImpl final : public ServerControl {
 public:
  ServerControlImpl(const ServerControlOptions& options, Network& network, BufferPool& pool, Events events,
                    LogLine log, int64_t now_us);

  void OnConnected(ConnId conn, int64_t now_us) override;
  void OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;
  void OnReports(const std::vector<ShardReport>& reports, int64_t now_us) override;
  void Drain(int64_t now_us) override;
  Term term() const override { return term_; }
  bool finished() const override { return finished_; }
  Status result() const override { return result_; }

 private:
  void Say(int64_t now_us);  // a Register or a Heartbeat, whichever is due
  void OnRegistered(const wire::Registered& message, int64_t now_us);
  void OnRefusal(const wire::Refusal& message, int64_t now_us);
  bool Heard(Term term, int64_t now_us);  // false: from a scheduler that has been replaced
  void TakeHeartbeat(uint32_t heartbeat_ms);
  void Log(const std::string& line) const;
  std::string Schedulers() const;  // all of them, for the user
  void OnLeft(const wire::LeaveReply& message);
  void Finish(Status result);
  void OnState(wire::ClusterState state, int64_t now_us);
  void TakePassed(const std::shared_ptr<const wire::ClusterState>& state);
  void SetState(std::shared_ptr<const wire::ClusterState> state);
  void LeaveJob();
  wire::Heartbeat MakeBriefHeartbeat() const;  // small, whatever the cluster
  wire::Heartbeat MakeHeartbeat();

  const ServerControlOptions options_;
  const Events events_;
  const LogLine log_;
  const int64_t start_us_;
  int64_t waiting_said_us_ = -1'000'000'000;  // when it last said that no scheduler answers

  LeaderLink link_;
  int64_t heard_us_;  // a scheduler that leads, for orphans
  int64_t said_us_ = 0;

  bool known_ = false;           // has an incarnation
  bool register_again_ = false;  // the scheduler asked for it
  std::string cluster_id_;
  Incarnation incarnation_;
  uint32_t index_ = 0;
  Term term_;
  std::shared_ptr<const wire::ClusterState> state_;
  ServerReports reports_;

  bool leaving_ = false;  // has asked for its slots to be moved away
  bool ending_ = false;   // every shard has seen the end
  bool end_said_ = false;
  int64_t ending_since_us_ = 0;
  bool finished_ = false;
  Status result_;
};

ServerControlImpl::ServerControlImpl(const ServerControlOptions& options, Network& network, BufferPool& pool,
                                     Events events, LogLine log, int64_t now_us)
    : options_(options),
      events_(std::move(events)),
      log_(std::move(log)),
      start_us_(now_us),
      link_({.places = Places(options), .heartbeat_us = options.heartbeat_us, .seed = options.uid}, network,
            pool),
      heard_us_(now_us),
      cluster_id_(options.cluster_id) {
  link_.Start(now_us);
}

std::string ServerControlImpl::Schedulers() const {
  std::string text = link_.several() ? "the schedulers at " : "the scheduler at ";
  for (size_t i = 0; i < link_.places().size(); ++i)
    text += (i == 0 ? "" : ", ") + ToString(link_.places()[i]);
  return text;
}

void ServerControlImpl::OnConnected(ConnId conn, int64_t now_us) {
  if (finished_ || !link_.OnConnected(conn, now_us)) return;
  // Nobody takes much from somebody who has said nothing yet.
  if (known_ && !register_again_ && !CAIRN_BUG(kFirstFrameLarge)) link_.Send(MakeBriefHeartbeat());
  Say(now_us);
}

void ServerControlImpl::OnDisconnect(ConnId conn, int64_t now_us) {
  if (finished_ || !link_.OnDisconnect(conn, now_us)) return;
  // The scheduler leaves when it has our confirmation, so a lost connection is its answer.
  if (ending_ && end_said_) return LeaveJob();
  if (known_ && !register_again_) Log("lost the scheduler at " + ToString(link_.place()) + ", reconnecting");
  link_.DialAgain(now_us);
}

void ServerControlImpl::OnTick(int64_t now_us) {
  if (finished_) return;
  if (ending_ && now_us - ending_since_us_ >= kEndPatienceUs) return LeaveJob();
  if (!known_ && now_us - start_us_ >= options_.register_deadline_us) {
    return Finish({Code::kDeadlineExceeded,
                   Schedulers() + " did not answer within " + Seconds(options_.register_deadline_us)});
  }
  if (known_ && now_us - heard_us_ >= options_.orphan_after_us) {
    return Finish({Code::kUnavailable, Schedulers() + " did not answer for " +
                                           Seconds(options_.orphan_after_us) + ": this server leaves"});
  }
  if (!known_ && now_us - start_us_ >= kFirstWaitingLogUs &&
      now_us - waiting_said_us_ >= kWaitingLogEveryUs) {
    waiting_said_us_ = now_us;
    Log("no answer from " + Schedulers() + " yet");
  }
  link_.OnTick(now_us);
  if (link_.connected() && now_us - said_us_ >= link_.heartbeat_us()) Say(now_us);
}

void ServerControlImpl::Say(int64_t now_us) {
  said_us_ = now_us;
  if (known_ && !register_again_) {
    if (ending_) end_said_ = true;
    return link_.Send(MakeHeartbeat());
  }
  wire::Register message;
  message.cluster_id = cluster_id_;
  message.role = wire::Role::kServer;
  message.uid = options_.uid;
  message.endpoint = options_.endpoint;
  message.threads = options_.threads;
  message.wanted_rank = known_ ? static_cast<int32_t>(index_) : options_.wanted_rank;
  link_.Send(message);
}

void ServerControlImpl::OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) {
  if (!link_.Is(conn) || finished_) return;
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) {
    Log("the scheduler at " + ToString(link_.place()) +
        " sent what is no message: " + message.status().message());
    return link_.Drop(now_us);
  }
  link_.OnHeard(now_us);
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, wire::Registered>) {
          OnRegistered(m, now_us);
        } else if constexpr (std::is_same_v<M, wire::HeartbeatReply>) {
          // One of an older term has been replaced and does not know it yet.
          if (!Heard(m.term, now_us)) return link_.LeaveForAnother(now_us);
          TakeHeartbeat(m.heartbeat_ms);
        } else if constexpr (std::is_same_v<M, wire::StateMessage>) {
          OnState(std::move(m.state), now_us);
        } else if constexpr (std::is_same_v<M, wire::StateDelta>) {
          // One that does not fit is made good by the answer to the next heartbeat.
          if (state_ == nullptr || !Heard(m.changed.term, now_us)) return;
          if (auto state = wire::Apply(*state_, m); state.ok()) OnState(std::move(*state), now_us);
        } else if constexpr (std::is_same_v<M, wire::Refusal>) {
          OnRefusal(m, now_us);
        } else if constexpr (std::is_same_v<M, wire::LeaveReply>) {
          OnLeft(m);
        }  // anything else is not for a server
      },
      *message);
}

bool ServerControlImpl::Heard(Term term, int64_t now_us) {
  if (term < term_ && !CAIRN_BUG(kOldTermAccepted)) return false;
  term_ = term;
  heard_us_ = now_us;
  link_.OnLed();
  return true;
}

// The scheduler knows how often it wants to hear of its nodes; one of an older version says nothing.
void ServerControlImpl::TakeHeartbeat(uint32_t heartbeat_ms) {
  if (heartbeat_ms != 0) link_.SetHeartbeat(int64_t{heartbeat_ms} * 1000);
}

void ServerControlImpl::OnRegistered(const wire::Registered& message, int64_t now_us) {
  if (message.uid != options_.uid) return;
  if (!Heard(message.term, now_us)) return link_.LeaveForAnother(now_us);
  register_again_ = false;
  TakeHeartbeat(message.heartbeat_ms);
  if (!known_) {
    known_ = true;
    incarnation_ = message.incarnation;
    index_ = message.rank;
    cluster_id_ = message.cluster_id;
    Log("registered as server " + std::to_string(index_) + " of cluster " + cluster_id_ + " (incarnation " +
        std::to_string(incarnation_.value) + ")");
    events_.on_registered(index_, incarnation_);
    return Say(now_us);
  }
  if (message.incarnation == incarnation_) return;
  // A scheduler that lost its log would give our slots to others.
  Finish({Code::kProtocol, "the scheduler at " + ToString(link_.place()) +
                               " knew this server as incarnation " + std::to_string(incarnation_.value) +
                               " and now calls it " + std::to_string(message.incarnation.value) +
                               ": was its log lost?"});
}

void ServerControlImpl::OnRefusal(const wire::Refusal& message, int64_t now_us) {
  if (message.code == Code::kUnavailable) {
    register_again_ = true;  // harmless where it is a standby that refuses
    return link_.LeaveForAnother(now_us);
  }
  // One that was replaced and does not know it yet does not know who came later, nor that the job runs. The
  // others may know this server; if none does, it ends as an orphan.
  const bool unknown = message.code == Code::kInvalidArgument || message.code == Code::kProtocol;
  if (known_ && register_again_ && unknown && !options_.standbys.empty())
    return link_.LeaveForAnother(now_us);
  Finish({message.code, message.text});
}

void ServerControlImpl::OnLeft(const wire::LeaveReply& message) {
  if (!known_ || message.incarnation != incarnation_) return;
  Log("has left: its partitions are on other servers");
  Finish(Status::Ok());
}

void ServerControlImpl::OnReports(const std::vector<ShardReport>& reports, int64_t now_us) {
  if (finished_) return;
  for (const ShardReport& report : reports)
    if (report.passed_state) TakePassed(report.passed_state);
  if (finished_) return;
  const bool changed = reports_.Take(reports);
  if (!ending_ && state_ && Over(*state_) && reports_.version() >= state_->version) {
    ending_ = true;
    ending_since_us_ = now_us;
    if (link_.connected() && known_) Say(now_us);
    return;
  }
  if (changed && link_.connected() && known_) Say(now_us);
}

void ServerControlImpl::OnState(wire::ClusterState state, int64_t now_us) {
  if (!known_ || state.cluster_id != cluster_id_) return;
  if (!Heard(state.term, now_us) || (state_ && state.version <= state_->version)) return;
  SetState(std::make_shared<const wire::ClusterState>(std::move(state)));
}

// From a worker, which had it from a scheduler that is silent now. It says nothing of whether one lives.
void ServerControlImpl::TakePassed(const std::shared_ptr<const wire::ClusterState>& state) {
  if (!known_ || state->cluster_id != cluster_id_ || state->term < term_) return;
  if (state_ == nullptr || state->version <= state_->version) return;
  term_ = state->term;
  Log("took state " + std::to_string(state->version.value) + " from a worker: the scheduler is silent");
  SetState(state);
}

void ServerControlImpl::SetState(std::shared_ptr<const wire::ClusterState> state) {
  CAIRN_CHECK(state_ == nullptr || state->version > state_->version);
  state_ = std::move(state);
  if (CAIRN_BUG(kServerLeavesEarly) && !state_->done_ranks.empty()) return Finish(Status::Ok());
  events_.on_state(state_);
}

void ServerControlImpl::Drain(int64_t now_us) {
  if (leaving_ || finished_) return;
  leaving_ = true;
  if (!known_ || CAIRN_BUG(kLeavesUndrained)) return Finish(Status::Ok());
  Log("leaving: its partitions move to other servers first");
  if (link_.connected()) Say(now_us);
}

void ServerControlImpl::LeaveJob() {
  if (state_->phase == wire::Phase::kEnded) return Finish(Status::Ok());
  Finish({Code::kJobFailed, state_->failure});
}

wire::Heartbeat ServerControlImpl::MakeBriefHeartbeat() const {
  wire::Heartbeat heartbeat;
  heartbeat.incarnation = incarnation_;
  heartbeat.uid = options_.uid;
  heartbeat.end_confirmed = ending_;
  reports_.FillBrief(heartbeat);
  if (options_.memory_left) {
    heartbeat.stats.memory = options_.memory_left();
    heartbeat.stats.memory.bytes += reports_.reusable_bytes();
  }
  heartbeat.leaving = leaving_;
  return heartbeat;
}

wire::Heartbeat ServerControlImpl::MakeHeartbeat() {
  wire::Heartbeat heartbeat = MakeBriefHeartbeat();
  reports_.Fill(heartbeat);
  return heartbeat;
}

void ServerControlImpl::Log(const std::string& line) const {
  if (log_) log_(line);
}

void ServerControlImpl::Finish(Status result) {
  if (finished_) return;
  finished_ = true;
  result_ = std::move(result);
  link_.Close();
  if (!result_.ok()) Log(result_.message());
}

}  // namespace

std::unique_ptr<ServerControl> ServerControl::Make(const ServerControlOptions& options, Network& network,
                                                   BufferPool& pool, Events events, LogLine log,
                                                   int64_t now_us) {
  return std::make_unique<ServerControlImpl>(options, network, pool, std::move(events), std::move(log),
                                             now_us);
}

}  // namespace cairn::server

// Registration with the scheduler, the connection to it, and heartbeats. Everything is repeated
// until it is answered; only the scheduler's word or a long silence ends a server.
#include "server/control/server_control.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/planted.h"
#include "server/control/server_control_impl.h"

namespace cairn::server {
namespace {
// A connection on which so many heartbeats in a row get no answer is not relied on alone.
constexpr int64_t kSilentHeartbeats = 2;  // well before the scheduler takes us for dead
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
}  // namespace

std::unique_ptr<ServerControl> ServerControl::Make(const ServerControlOptions& options, Network& network,
                                                   BufferPool& pool, Events events, LogLine log,
                                                   int64_t now_us) {
  return std::make_unique<ServerControlImpl>(options, network, pool, std::move(events), std::move(log),
                                             now_us);
}

ServerControlImpl::ServerControlImpl(const ServerControlOptions& options, Network& network, BufferPool& pool,
                                     Events events, LogLine log, int64_t now_us)
    : options_(options),
      network_(network),
      pool_(pool),
      events_(std::move(events)),
      log_(std::move(log)),
      start_us_(now_us),
      dialer_(network, Places(options), {.every_us = options.heartbeat_us, .seed = options.uid}),
      heartbeat_us_(options.heartbeat_us),
      heard_us_(now_us),
      cluster_id_(options.cluster_id) {
  dialer_.OnTick(now_us);
}

std::string ServerControlImpl::Schedulers() const {
  std::string text = (options_.standbys.empty() ? "the scheduler at " : "the schedulers at ") +
                     ToString(options_.scheduler);
  for (const wire::Endpoint& standby : options_.standbys) text += ", " + ToString(standby);
  return text;
}

void ServerControlImpl::LeaveForAnother(int64_t now_us) {
  if (options_.standbys.empty()) return;
  network_.Close(conn_);
  conn_ = ConnId{};
  dialer_.DialSoon(now_us);
}

void ServerControlImpl::OnConnected(ConnId conn, int64_t now_us) {
  if (finished_ || !dialer_.OnConnected(conn)) return;
  if (connected()) network_.Close(conn_);  // a silent one
  conn_ = conn;
  conn_heard_us_ = now_us;
  // Nobody takes much from somebody who has said nothing yet.
  if (known_ && !register_again_ && !CAIRN_BUG(kFirstFrameLarge))
    network_.Send(conn_, wire::EncodeControl(MakeBriefHeartbeat(), pool_));
  Say(now_us);
}

void ServerControlImpl::OnDisconnect(ConnId conn, int64_t now_us) {
  if (finished_ || dialer_.OnDisconnect(conn, now_us) || conn != conn_) return;
  // The scheduler leaves when it has our confirmation, so a lost connection is its answer.
  if (ending_ && end_said_) return LeaveJob();
  if (known_ && !register_again_) Log("lost the scheduler at " + ToString(dialer_.place()) + ", reconnecting");
  conn_ = ConnId{};
  dialer_.DialSoon(now_us);
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
  if (!known_ && now_us - start_us_ >= kFirstWaitingLogUs && now_us - waiting_said_us_ >= kWaitingLogEveryUs) {
    waiting_said_us_ = now_us;
    Log("no answer from " + Schedulers() + " yet");
  }
  const bool silent = connected() && now_us - conn_heard_us_ >= kSilentHeartbeats * heartbeat_us_;
  if (!connected() || silent) dialer_.OnTick(now_us);
  if (connected() && now_us - said_us_ >= heartbeat_us_) Say(now_us);
}

void ServerControlImpl::Say(int64_t now_us) {
  said_us_ = now_us;
  if (known_ && !register_again_) {
    if (ending_) end_said_ = true;
    return network_.Send(conn_, wire::EncodeControl(MakeHeartbeat(), pool_));
  }
  wire::Register message;
  message.cluster_id = cluster_id_;
  message.role = wire::Role::kServer;
  message.uid = options_.uid;
  message.endpoint = options_.endpoint;
  message.threads = options_.threads;
  message.wanted_rank = known_ ? static_cast<int32_t>(index_) : options_.wanted_rank;
  network_.Send(conn_, wire::EncodeControl(message, pool_));
}

void ServerControlImpl::OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) {
  if (conn != conn_ || finished_) return;
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) {
    Log("the scheduler at " + ToString(dialer_.place()) +
        " sent what is no message: " + message.status().message());
    network_.Close(conn_);
    conn_ = ConnId{};
    return dialer_.DialSoon(now_us);
  }
  conn_heard_us_ = now_us;
  dialer_.Stop();  // it was only slow
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, wire::Registered>) {
          OnRegistered(m, now_us);
        } else if constexpr (std::is_same_v<M, wire::HeartbeatReply>) {
          // One of an older term has been replaced and does not know it yet.
          if (!Heard(m.term, now_us)) return LeaveForAnother(now_us);
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
  dialer_.ResetPause();
  return true;
}

// The scheduler knows how often it wants to hear of its nodes; one of an older version says nothing.
void ServerControlImpl::TakeHeartbeat(uint32_t heartbeat_ms) {
  if (heartbeat_ms == 0) return;
  heartbeat_us_ = int64_t{heartbeat_ms} * 1000;
  dialer_.set_every_us(heartbeat_us_);
}

void ServerControlImpl::OnRegistered(const wire::Registered& message, int64_t now_us) {
  if (message.uid != options_.uid) return;
  if (!Heard(message.term, now_us)) return LeaveForAnother(now_us);
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
  Finish({Code::kProtocol, "the scheduler at " + ToString(dialer_.place()) +
                               " knew this server as incarnation " + std::to_string(incarnation_.value) +
                               " and now calls it " + std::to_string(message.incarnation.value) +
                               ": was its log lost?"});
}

void ServerControlImpl::OnRefusal(const wire::Refusal& message, int64_t now_us) {
  if (message.code == Code::kUnavailable) {
    register_again_ = true;  // harmless where it is a standby that refuses
    return LeaveForAnother(now_us);
  }
  // One that was replaced and does not know it yet does not know who came later, nor that the job runs. The
  // others may know this server; if none does, it ends as an orphan.
  const bool unknown = message.code == Code::kInvalidArgument || message.code == Code::kProtocol;
  if (known_ && register_again_ && unknown && !options_.standbys.empty()) return LeaveForAnother(now_us);
  Finish({message.code, message.text});
}

void ServerControlImpl::OnLeft(const wire::LeaveReply& message) {
  if (!known_ || message.incarnation != incarnation_) return;
  Log("has left: its partitions are on other servers");
  Finish(Status::Ok());
}

void ServerControlImpl::Log(const std::string& line) const {
  if (log_) log_(line);
}

void ServerControlImpl::Finish(Status result) {
  if (finished_) return;
  finished_ = true;
  result_ = std::move(result);
  dialer_.Stop();
  if (connected()) network_.Close(conn_);
  if (!result_.ok()) Log(result_.message());
}

}  // namespace cairn::server

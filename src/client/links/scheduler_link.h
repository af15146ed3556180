// What a worker and its scheduler say to each other: registration, heartbeats, the newest state, barrier
// counts. Everything is repeated until answered. How it connects: transport/link/leader_link.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "client/links/client_options.h"
#include "transport/link/leader_link.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::client {

class SchedulerLink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnRegistered(int64_t now_us) = 0;
    virtual void OnNewState(int64_t now_us) = 0;  // state() has it
    // Replies to calls: TableReply, LeaveReply, a Refusal of either, and a Deadlock.
    virtual void OnReply(const wire::ControlMessage& message, int64_t now_us) = 0;
    // This worker can't go on: refused, or retired.
    virtual void OnRefused(Status why, int64_t now_us) = 0;
    virtual wire::NodeStats Stats() const = 0;
    virtual std::vector<uint64_t> Staleness() const { return {}; }  // as in heartbeats
  };

  SchedulerLink(const ClientCoreOptions& options, Network& network, BufferPool& pool, Listener& listener);

  void Start(int64_t now_us);
  void Stop();  // for good
  // Whether events of this connection are for the link.
  bool Owns(ConnId conn) const { return link_.Owns(conn); }
  void OnConnected(ConnId conn, int64_t now_us);
  void OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us);
  void OnDisconnect(ConnId conn, int64_t now_us);
  void OnTick(int64_t now_us);

  bool registered() const { return incarnation_.value != 0; }
  bool connected() const { return link_.connected(); }
  // Counts connections: a caller repeats what it had sent on an older one.
  uint64_t connection_number() const { return link_.connection_number(); }
  void Send(const wire::ControlMessage& message) { link_.Send(message); }
  void Heartbeat(int64_t now_us);
  // After this no heartbeats: a worker that has left has no incarnation to be alive with.
  void StopHeartbeats() { heartbeats_ = false; }

  // The number of the barrier entered, counted from this worker's first.
  uint64_t EnterBarrier(int64_t now_us);
  uint64_t barrier_count() const { return barrier_base_ + barriers_entered_; }
  bool BarrierOpen(uint64_t number) const { return registered() && barrier_open_ >= barrier_base_ + number; }

  const std::shared_ptr<const wire::ClusterState>& state() const { return state_; }
  Incarnation incarnation() const { return incarnation_; }
  Term term() const { return term_; }
  Rank rank() const { return rank_; }
  const std::string& cluster_id() const { return cluster_id_; }
  // What is awaited, in words: no answer from the scheduler, or what the scheduler says.
  std::string Awaiting(int64_t now_us) const;
  // It has not been heard for longer than it should take.
  bool Silent(int64_t now_us) const;
  // It has not been heard for two heartbeats: others may know more than it has told us.
  bool Quiet(int64_t now_us) const;
  int64_t heartbeat_us() const { return link_.heartbeat_us(); }
  // A state that another node has passed on.
  void TakePassed(wire::StateMessage& message, int64_t now_us) { Take(message, now_us); }
  // What the scheduler last said about who is awaited.
  const std::string& said_awaiting() const { return awaiting_; }
  // And whether some partition has too few owners for anything to be acknowledged.
  bool said_blocked() const { return blocked_; }

 private:
  // "the scheduler at 10.0.0.1:8118 or 10.0.0.2:8118"
  std::string Named() const;
  void TakeHeartbeat(uint32_t heartbeat_ms);
  void SendRegister(int64_t now_us);
  // What is said every so often: who it is, or that it is alive.
  void Say(int64_t now_us);
  bool StandsBy(const wire::ControlMessage& message) const;
  bool TakeTerm(Term term);
  void EndForLostLog(const std::string& what, int64_t now_us);
  void Take(const wire::Registered& message, int64_t now_us);
  void Take(const wire::HeartbeatReply& message, int64_t now_us);
  void Take(wire::StateMessage& message, int64_t now_us);
  void Take(const wire::Refusal& message, int64_t now_us);

  const ClientCoreOptions& options_;
  Listener& listener_;
  LeaderLink link_;
  bool on_ = false;
  bool heartbeats_ = true;
  int64_t heard_us_ = 0;  // a scheduler that leads
  int64_t beat_us_ = 0;   // next heartbeat or registration
  bool ever_heard_ = false;
  bool register_again_ = false;  // a scheduler that is heard does not know this worker
  std::string last_refusal_;
  std::string awaiting_;
  bool blocked_ = false;
  Term term_;
  Incarnation incarnation_;
  Rank rank_;
  std::string cluster_id_;
  uint64_t barrier_base_ = 0, barriers_entered_ = 0, barrier_open_ = 0;
  std::shared_ptr<const wire::ClusterState> state_;
};

}  // namespace cairn::client

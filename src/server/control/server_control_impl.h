// The control side of a server as it is. Registration and the connection to the scheduler are in
// server_control.cc, what the shards report and the end of the job in server_reports.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/control/server_control.h"
#include "transport/link/dialer.h"

namespace cairn::server {

// All shards' reports as one: what a heartbeat says.
struct MergedReport {
  StateVersion version;                       // held by every shard
  ViewNumber hold_view;                       // 0 unless every shard holds for the same view
  std::vector<wire::TableRound> hold_rounds;  // by table; the highest of any shard
  wire::NodeStats stats;
  std::vector<wire::SlotNews> news;
  std::vector<wire::SlotLoad> loads;
  Shard::HotReport hot;
  uint64_t reusable_bytes = 0;
  std::vector<wire::StalledRound> stalled;
};
MergedReport Merge(const std::vector<ShardReport>& reports);

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
  // server_control.cc
  bool connected() const { return conn_ != ConnId{}; }
  void LeaveForAnother(int64_t now_us);  // this one does not lead
  std::string Schedulers() const;           // all of them, for the user
  void Say(int64_t now_us);  // a Register or a Heartbeat, whichever is due
  void OnRegistered(const wire::Registered& message, int64_t now_us);
  void OnRefusal(const wire::Refusal& message, int64_t now_us);
  bool Heard(Term term, int64_t now_us);  // false: from a scheduler that has been replaced
  void TakeHeartbeat(uint32_t heartbeat_ms);
  void Log(const std::string& line) const;
  void OnLeft(const wire::LeaveReply& message);
  void Finish(Status result);

  // server_reports.cc
  void OnState(wire::ClusterState state, int64_t now_us);
  void TakePassed(const std::shared_ptr<const wire::ClusterState>& state);
  void SetState(std::shared_ptr<const wire::ClusterState> state);
  void LeaveJob();
  wire::Heartbeat MakeBriefHeartbeat() const;  // small, whatever the cluster
  wire::Heartbeat MakeHeartbeat();

  const ServerControlOptions options_;
  Network& network_;
  BufferPool& pool_;
  const Events events_;
  const LogLine log_;
  const int64_t start_us_;
  int64_t waiting_said_us_ = -1'000'000'000;  // when it last said that no scheduler answers

  Dialer dialer_;  // for the scheduler, or one of several
  ConnId conn_;    // 0: none yet, or lost
  int64_t heartbeat_us_;       // as the scheduler says
  int64_t heard_us_;           // the scheduler, for orphans
  int64_t conn_heard_us_ = 0;  // on this connection: beside a silent one others are tried
  int64_t said_us_ = 0;

  bool known_ = false;           // has an incarnation
  bool register_again_ = false;  // the scheduler asked for it
  std::string cluster_id_;
  Incarnation incarnation_;
  uint32_t index_ = 0;
  Term term_;
  std::shared_ptr<const wire::ClusterState> state_;
  MergedReport report_;
  size_t next_load_ = 0;  // of its slots, to be reported next

  bool leaving_ = false;  // has asked for its slots to be moved away
  bool ending_ = false;  // every shard has seen the end
  bool end_said_ = false;
  int64_t ending_since_us_ = 0;
  bool finished_ = false;
  Status result_;
};

}  // namespace cairn::server

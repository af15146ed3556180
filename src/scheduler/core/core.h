// The scheduler's core: what is known of each node at this moment (connections, last heard,
// barrier counts, reports), and the order log → install → tell. The decisions themselves are in
// rules/. Split by subject: scheduler.cc (start, commit, dispatch), connections.cc,
// registration.cc, heartbeat.cc (heartbeats, barriers), detection.cc (time), failover.cc (lost servers),
// moves.cc (news of owners, placement), traffic_watch.h (when slots move for their work), scale.cc, table_requests.cc, awaiting.cc, status_json.cc. One
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/callers.h"
#include "scheduler/core/deadlock_watch.h"
#include "scheduler/core/hearing.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/traffic_watch.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/job_end.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/memory_room.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/repeated_word.h"
#include "scheduler/rules/table_spec.h"
#include "scheduler/rules/tables.h"
#include "scheduler/rules/user_text.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {

// Why a node is dead that was not silent for long: whoever started its process has said so.
inline constexpr const char* kProcessEnded = "its process has ended";

class SchedulerCore final : public Scheduler {
 public:
  SchedulerCore(const SchedulerOptions& options, MetaStore& store, Network& network, BufferPool& pool,
                int64_t now_us, LogLine log, SchedulerObserver* observer);
  Status Init(int64_t now_us);

  void OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;
  int64_t next_tick_us() const override;
  void OnWaited(int64_t waited_us) override;
  bool cut_off() const override { return cut_off_; }
  bool finished() const override { return finished_; }
  Status fatal() const override { return fatal_; }
  const wire::ClusterState& state() const override { return durable_.state; }
  // For tests: all that a restart must bring back.
  const DurableState& durable() const { return durable_; }

 private:
  // A node as this process has heard of it. Nothing here outlives a restart.
  struct Live {
    ConnId conn;  // 0: not connected
    int64_t closed_us = -1;   // when its last connection went; -1: never, or it has one
    bool heard = false;       // since this scheduler started
    bool silent = false;      // overdue: dead, unless a slot needs it
    StateVersion version;     // that it holds
    StateVersion state_sent;  // on this connection
    int64_t state_sent_us = 0;
    uint64_t barrier_count = 0;
    ViewNumber hold_view;
    StateVersion hold_version;
    std::vector<wire::TableRound> open_rounds;
    bool end_confirmed = false;
    std::vector<wire::SlotNews> news;  // servers: not yet looked at
    StateVersion news_held;            // the version that its sender held
    RepeatedWord slow;                 // a server: that some backup is slow
    std::vector<wire::HotRow> hot_rows;       // servers
    std::vector<wire::SampledTable> sampled;  // servers
    std::vector<wire::StalledRound> stalled;  // servers
    int64_t stalled_us = 0;                   // when it said so
    bool wants_to_leave = false;       // servers: says so itself
    bool told_needed = false;          // servers: has been logged as silent, but needed
    bool told_slow = false;            // servers: has been logged as slow, but needed
    bool out_of_memory = false;        // its launcher says that it ended so
    bool told_full = false;            // servers: has been logged as having no memory for copies
    int64_t rest_until_us = 0;         // servers: was too slow; no copy is begun to it before
    bool told_ahead = false;           // has been logged for holding a version that we have not made
    wire::NodeStats stats, rate_base;  // rate_base: the sample that rates are measured from
    int64_t rate_base_us = 0;
    double pushes_per_s = 0, pulls_per_s = 0, bytes_per_s = 0;
  };
  // A table request that waits: for a view to be finished, or for the servers to hold its version.
  struct TableRequest {
    ConnId conn;
    wire::ControlMessage message;  // CreateTable, CreateTables or DropTable
    std::optional<wire::TableReply> reply;
    bool waits;  // for the record before, to share the next one with others
  };
  using RequestKey = std::pair<Incarnation, uint64_t>;

  // scheduler.cc
  Status LoadOrCreate();
  DurableState Next() const;       // a copy with the next version, to be changed and committed
  bool Commit(DurableState next);  // false: the store failed and nothing may be said any more
  Status Persist(const DurableState& next);
  void Settle(int64_t now_us);   // after every event: whatever follows from it
  bool Advance(int64_t now_us);  // one more record, if a rule asks for it
  bool MakeView();               // the pending one; requires every server's report
  void LogPhase();
  void Handle(ConnId conn, const wire::ControlMessage& message, int64_t now_us);

  // connections.cc
  void Send(ConnId conn, const wire::ControlMessage& message);
  void Refuse(ConnId conn, Code code, std::string text, uint64_t request = 0);
  // Refuses a node, unless the connection is known to be another's: then it was a stray copy of a
  // dead one's message, and a refusal says to nobody in particular that it is dead.
  void RefuseNode(ConnId conn, Incarnation incarnation, Code code, std::string text);
  void Broadcast(int64_t now_us);
  bool HoldsStatesBack(int64_t now_us) const;  // until more has come together
  const wire::ClusterState* FindRecent(StateVersion version) const;
  const wire::FramePtr& StateFrame(StateVersion has);
  // The newest state, unless it was sent on this connection a moment ago.
  void SendStateIfBehind(Live& node, int64_t now_us);
  void Bind(Incarnation incarnation, ConnId conn, int64_t now_us);
  void Unbind(ConnId conn, int64_t now_us);
  void NoteCaller(ConnId conn, int64_t now_us);
  void CloseLateCallers(int64_t now_us);
  Live* FindLive(Incarnation incarnation);
  const Live* FindLive(Incarnation incarnation) const;

  // registration.cc
  void OnRegister(ConnId conn, const wire::Register& request, int64_t now_us);
  void AnswerKnown(ConnId conn, const NodeRecord& node, int64_t now_us);
  void AdmitServer(ConnId conn, const wire::Register& request, int64_t now_us);
  void AdmitWorker(ConnId conn, const wire::Register& request, int64_t now_us);
  void Admit(ConnId conn, const wire::Register& request, uint32_t rank, uint64_t barrier_base,
             int64_t now_us);
  wire::Registered RegisteredFor(const NodeRecord& node) const;
  void OnLeave(ConnId conn, const wire::Leave& leave, int64_t now_us);
  void OnGiveUp(ConnId conn, const wire::GiveUp& give_up, int64_t now_us);
  void OnProcessEnded(ConnId conn, const wire::ProcessEnded& ended, int64_t now_us);
  void OnAbort(ConnId conn, const wire::AbortJob& abort, int64_t now_us);
  void Retire(Incarnation incarnation, const std::string& why);  // tells the node, if it is connected

  void ForgetRequests(Incarnation incarnation);

  // heartbeat.cc
  void OnHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, int64_t now_us);
  void RefuseHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, const NodeRecord* node);
  void TakeReport(Live& node, const wire::Heartbeat& heartbeat, int64_t now_us);
  void TakeRates(Live& node, const wire::NodeStats& stats, int64_t now_us);
  std::vector<uint32_t> ServersNotHolding() const;  // for the pending view
  uint64_t BarrierOpen();
  // The smallest count of the live workers, `except` left out; none while one of them has not been
  // heard since the scheduler's start, named in `unheard`.
  std::optional<uint64_t> SmallestCount(std::optional<Rank> except, uint32_t* unheard) const;
  void TellBarrier();
  wire::HeartbeatReply ReplyNow();

  // detection.cc
  void NoticePause(int64_t now_us);
  void LookForIsolation(int64_t now_us, int64_t since_last_us);
  bool GoesOnHere(int64_t now_us) const;  // the nodes of this host could go on alone
  void DetectDeaths(int64_t now_us);
  void GiveUpAfterGrace(int64_t now_us);
  void ResendStates(int64_t now_us);
  void UpdateFinished(int64_t now_us);
  void NoteEndTold();
  bool AwaitedAtEnd(Incarnation incarnation, const Live& live, int64_t now_us) const;

  // awaiting.cc
  void OnBlocked(ConnId conn, const wire::Blocked& report, int64_t now_us);
  void LookForDeadlock(int64_t now_us);

  // failover.cc
  void DetectLostServers(int64_t now_us);
  bool HeardLately(uint32_t server, int64_t now_us) const;
  std::vector<uint32_t> Suspects(int64_t now_us) const;  // servers (indexes) not heard lately
  // The slots that would hang on nobody who is heard, were this server declared dead now.
  std::vector<uint32_t> SlotsThatNeed(const wire::ServerInfo& server, int64_t now_us) const;
  // One record: the job goes on with the other owners, or has failed. The server is retired.
  void LoseServer(const wire::ServerInfo& lost, std::string how, int64_t now_us);
  void AlarmIfSingle(size_t slots, const std::string& why);

  // moves.cc
  void TakeOwnersReport(Live& node, uint32_t index, const wire::Heartbeat& heartbeat, int64_t now_us);
  bool EndOverRuin(uint32_t index, const std::vector<wire::SlotNews>& all);
  void LookAtTraffic(int64_t now_us);
  bool OwnersWorkWaits(int64_t now_us) const;
  bool AdvanceOwners(int64_t now_us);  // one record with all that can be done about owners now
  struct OwnersRecord;                 // what it has in it, for the log lines
  void ApplyNews(DurableState& next, int64_t now_us, OwnersRecord* record);
  void MarkLeaving(DurableState& next, OwnersRecord* record);
  void PlaceSlots(DurableState& next, int64_t now_us, OwnersRecord* record);
  void LetEmptyGo(DurableState& next, OwnersRecord* record);
  void LogSlowButNeeded(const OwnersRecord& record);
  void LogOwners(const OwnersRecord& record);
  bool AllServersHeard() const;
  SlotBytes KnownBytes() const;
  PlacementLimits Limits(int64_t now_us) const;
  void AvoidThoseWithoutMemory(const SlotBytes& bytes, PlacementLimits* limits);
  int64_t OwnersGapUs() const;
  bool PlacementDue(int64_t now_us) const;

  // scale.cc
  void OnScale(ConnId conn, const wire::Scale& scale, int64_t now_us);
  void ExpectServers(DurableState& next, uint32_t servers) const;
  void ExpectJoined(DurableState& next) const;  // a server more than expected has come to stay
  // Servers that `cairn scale` asked to go stay after all; says which.
  std::vector<uint32_t> WantAgain(DurableState& next, uint32_t wanted) const;

  // table_requests.cc
  void OnTableRequest(ConnId conn, Incarnation incarnation, uint64_t request, wire::ControlMessage message);
  bool RunDeferred();  // one record for all requests that wait; false: none was ready
  std::vector<ServerMemory> MemoryOfServers() const;  // of those that are there
  void AnswerTables();
  bool ServersHold(StateVersion version) const;
  void RememberAnswer(const RequestKey& key, const wire::TableReply& reply);

  // awaiting.cc
  const std::string& Awaiting();
  std::string AwaitedToForm() const;
  std::string AwaitedWhileRunning() const;
  std::string AwaitedOwners() const;

  // status_json.cc
  struct HotRowShare {
    uint64_t key = 0;
    double share = 0;
    uint32_t slot = 0, server = 0;
  };
  std::map<TableId, std::vector<HotRowShare>> HottestRows() const;
  std::vector<wire::StalledRound> StalledRounds(int64_t now_us) const;  // as all servers say, as of now
  std::string StatusJson(int64_t now_us) override;

  const SchedulerOptions options_;
  MetaStore& store_;
  Network& network_;
  BufferPool& pool_;
  const LogLine log_;
  SchedulerObserver* const observer_;

  DurableState durable_;
  std::map<uint64_t, Incarnation> by_uid_;  // index into durable_.nodes
  std::deque<wire::ClusterState> recent_;   // the last few that were told, the newest last
  std::map<StateVersion, wire::FramePtr> state_frames_;  // the newest state, by what the node has
  StateVersion frames_of_;
  uint64_t log_bytes_ = 0;
  Status fatal_;
  bool finished_ = false;
  bool cut_off_ = false;

  Hearing hearing_;
  std::map<Incarnation, Live> live_;  // nodes of the state; workers that left, while connected
  std::map<ConnId, Incarnation> bound_;
  Callers callers_{options_.max_callers, options_.caller_idle_us};  // connections that are not in bound_
  bool untold_ = false;    // the newest state has not been broadcast
  int64_t told_us_ = INT64_MIN / 2;
  bool unsettled_ = true;  // something may follow from what happened last
  uint64_t barrier_open_ = 0, barrier_told_ = 0;
  bool barrier_stale_ = true;
  std::string awaiting_;
  uint32_t blocked_slots_ = 0;  // as of awaiting_
  bool awaiting_stale_ = true;

  std::map<RequestKey, TableRequest> requests_;      // under way
  std::map<RequestKey, wire::TableReply> answered_;  // so that a late copy gets the same answer

  DeadlockWatch deadlocks_;
  int64_t deadlock_looked_us_ = INT64_MIN / 2;

  std::vector<uint64_t> slot_bytes_;  // as reported by primaries; kUnknownBytes: not yet
  TrafficWatch traffic_;
  bool traffic_due_ = false;
  int64_t traffic_looked_us_ = INT64_MIN / 2;
  bool bytes_changed_ = false;        // since the last placement
  bool avoided_ = false;              // it has left servers out that may be back soon
  StateVersion placed_version_;       // the state after the last placement
  int64_t placed_us_ = 0;
  int64_t placing_us_ = INT64_MIN / 2;  // when slots last began to move, or could have
  int64_t owners_record_us_ = INT64_MIN / 2;
  bool single_ = false;       // an alarm about slots with one owner has not been cleared
  uint32_t copies_done_ = 0;  // in this wave of moves

  int64_t last_tick_us_;
  int64_t stay_until_us_ = 0;         // a job that was over at the start: leavers may come back
  int64_t no_workers_since_us_ = -1;  // running, and nobody is live
};

}  // namespace cairn::scheduler

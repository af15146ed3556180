// The parts of the client core put together: who is told what, in which order. core.cc has the
// driver's events and the cluster's state, core_reroute.cc what a new slot map means, core_requests.cc
// the way of a request, core_rounds.cc what is special about rounds (their two phases, what their
// answers tell), core_marks.cc when one is over, core_waiting.cc deadlines, log lines and ends,
// core_blocked.cc waits that nothing ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/recycled.h"
#include "client/protocol/client_core.h"
#include "client/protocol/completions.h"
#include "client/protocol/control_calls.h"
#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/links/shard_link.h"
#include "client/protocol/slot_book.h"
#include "client/protocol/table_order.h"

namespace cairn::client {

class Core final : public ClientCore, private SchedulerLink::Listener, private ShardLink::Listener {
 public:
  Core(const ClientCoreOptions& options, Network& network, BufferPool& pool, LogLine log, int64_t now_us,
       ClientObserver* observer);

  void OnConnected(ConnId conn, int64_t now_us) override;
  void OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;
  uint64_t MostBodyBytes(ConnId conn, const wire::FrameHeader& header) const override;

  void Start(int64_t deadline_us, Done done, int64_t now_us) override;
  void CreateTable(const TableSpec& spec, int64_t deadline_us, TableDone done, int64_t now_us) override;
  void CreateTables(std::vector<TableSpec> specs, int64_t deadline_us, TablesDone done,
                    int64_t now_us) override;
  void DropTable(const std::string& name, int64_t deadline_us, Done done, int64_t now_us) override;
  void Submit(Request request, int64_t now_us) override;
  void SubmitInTurns(Request push, Request pull, int64_t now_us) override;
  bool has_room() const override;
  void Barrier(int64_t deadline_us, Done done, int64_t now_us) override;
  void Leave(int64_t deadline_us, Done done, int64_t now_us) override;
  void Cancel(int64_t now_us) override;

  std::shared_ptr<const wire::ClusterState> state() const override { return scheduler_.state(); }
  Incarnation incarnation() const override { return scheduler_.incarnation(); }
  Term term() const override { return scheduler_.term(); }
  Rank rank() const override { return scheduler_.rank(); }
  Round next_round(TableId table) const override;
  Status fatal() const override { return calls_.left() ? Status::Ok() : fatal_; }
  uint64_t frames_sent() const override { return links_.frames_sent(); }
  uint64_t rewinds() const override { return links_.rewinds() + reroutes_; }

 private:
  // Between the ids of two frames lie those of the pieces that the first is cut into.
  static constexpr uint64_t kFrameIdStep = uint64_t{1} << 20;
  static constexpr int64_t kAskEveryUs = 50'000;  // for a state that others have already

  // One frame of a request, by part.
  struct FrameState {
    uint64_t id = 0;        // 0 once answered
    bool marks = false;     // carries this worker's mark of a round
    StateVersion answered;  // marks: the state that the answer was made under
  };
  // A request under way. It stays until its last frame is answered, even when the caller has been
  // told that its deadline has passed.
  struct Record {
    Request request;  // parts without their frames, which the links have
    bool sent = false;
    bool ended = false;  // `done` has been called
    bool parks = false;  // a round, or a pull of a sync table
    int64_t begun_us = 0;
    Round round;
    uint32_t unanswered = 0;
    RecycledVector<FrameState> frames;  // as many as parts, once sent
    uint64_t moves = 0;              // pieces that its frames were cut into by new slot maps
    Status outcome;
    std::vector<uint32_t> missing_ranks;  // as a shard last said
    std::string waits_for;                // the same, of an answer that is held
    bool when_assigned = false;           // a pull that waits until somebody has assigned values
    // Rounds: what the answers so far have said.
    bool all_joined = true;  // every one of them, that every worker had joined
    // By slot, as they come: where a slot has moved, its old and its new owner say the same.
    RecycledVector<std::pair<uint32_t, wire::SlotReport>> reports;
    // Slots have moved, or an answer does not say enough: whether every slot is covered is looked at.
    bool doubtful = false;
    StateVersion newest_answer;  // if doubtful
  };
  static constexpr int64_t kStartLogUs = 3'000'000;  // how often a starting client says who is missing
  struct StartCall {
    int64_t deadline_us = 0;
    int64_t log_us = 0;
    Done done;
  };

  // SchedulerLink::Listener
  void OnRegistered(int64_t now_us) override;
  void OnNewState(int64_t now_us) override;
  void OnReply(const wire::ControlMessage& message, int64_t now_us) override;
  void OnRefused(Status why, int64_t now_us) override;
  wire::NodeStats Stats() const override;
  // ShardLink::Listener
  ShardLink::Verdict OnValues(const Outgoing& frame, const Answer& answer,
                              const wire::ValuesView& values) override;
  void OnApplied(SlotId slot, Seq seq) override;
  void OnFrameEnd(const Outgoing& frame, const Status& outcome, const Answer& answer,
                  int64_t now_us) override;
  void OnNewerState(StateVersion version, int64_t now_us) override;
  void OnStateOf(ShardLink& link, wire::ControlMessage& message) override;
  void OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message) override;
  void OnLinkFatal(Status why, int64_t now_us) override;

  // core.cc
  // Why no new call is taken; ok if it is.
  Status Closed() const;
  // After every event: calls that can go on do, and ended ones are told.
  void Settle(int64_t now_us);

  // core_reroute.cc
  std::unique_ptr<ShardLink> MakeLink(const wire::ServerInfo& server, uint16_t thread);
  void FollowMap(int64_t now_us);
  void Reroute(std::vector<std::unique_ptr<ShardLink>>& gone, int64_t now_us);
  void MoveFrame(ShardLink::Moving moving);
  void FitToMap(Record& record);
  void LogMoves(const wire::ClusterState& before, int64_t now_us);
  void LogSlotsMoved(int64_t now_us);
  void AskForState(int64_t now_us);
  void CompareStates(int64_t now_us);
  void TakePassedState(int64_t now_us);

  // core_marks.cc
  void ForgetAnswersOf(const std::vector<std::unique_ptr<ShardLink>>& gone);
  // The shard had the slot map that this client has.
  bool SameMapAt(StateVersion version) const {
    return version.value <= book_.state_version && version >= newest_since_;
  }
  void NoteMark(Record& record, FrameState& frame, StateVersion made_under);
  bool IsCovered(uint64_t id, Record& record, int64_t now_us);
  void FinishCovered(int64_t now_us);
  void MarkOpenRounds(int64_t now_us);
  // Sends a bare mark to every shard thread that has not got one which covers the slots it has now;
  // returns to how many.
  size_t MarkMissing(uint64_t id, Record& record, int64_t now_us);
  wire::FramePtr CopyMark(const Record& record, StateVersion since);

  // core_requests.cc
  Status CheckRequest(const Request& request);
  TableOrder* OrderOf(TableId table);
  Round FirstRoundOf(const wire::TableInfo& table) const;
  void Hold(uint64_t id, int64_t now_us);
  void ReleaseHeld(int64_t now_us);
  void DropHeldParts(uint64_t push, const Status& why);
  void ReleaseRounds(TableId table, int64_t now_us);
  uint64_t Admit(Request request, int64_t now_us);
  void Release(uint64_t id, Round round, int64_t now_us);
  void SendPart(uint64_t id, Record& record, uint32_t part, int64_t now_us, bool fitted = false);
  bool BeginsTrip(uint64_t id, uint64_t trip, ShardLink& link) const;
  void Finish(uint64_t id, int64_t now_us);
  void TellCaller(Record& record, Status status);
  ShardLink::Verdict TakeValues(Record& record, const Outgoing& frame,
                                const wire::ValuesView& values);
  ShardLink::Verdict CheckPositions(const Record& record, const wire::ValuesView& values);

  // core_rounds.cc
  Status CheckTurn(const Request& request);
  ShardLink::Verdict TakeReport(Record& record, const Outgoing& frame, const Answer& answer,
                                const wire::ValuesView& values);
  void TellRoundInfo(const Record& record) const;
  void FinishRound(uint64_t id, const Record& record, int64_t now_us);
  void FinishContribute(uint64_t id, const Record& record, int64_t now_us);
  void SkipRound(TableId table, int64_t now_us);

  // core_waiting.cc
  void CheckDeadlines(int64_t now_us);
  void Expire(uint64_t id, int64_t now_us);
  void SettleStart(int64_t now_us);
  std::string StartAwaits(int64_t now_us) const;
  void LogWaiting(int64_t now_us);
  std::string TableName(TableId table) const;
  std::string WhatOf(const Record& record) const;
  std::string AwaitedBy(const Record& record, int64_t now_us) const;
  // Of those that the record waits for, the ones in a barrier, as the scheduler last said.
  std::vector<uint32_t> MissingInBarrier(const Record& record) const;
  void EndCall(uint64_t id, const std::string& text, int64_t now_us);

  // core_blocked.cc
  std::optional<wire::Blocked> BlockedNow(int64_t now_us) const;
  void ReportBlocked(int64_t now_us);
  void OnDeadlock(const wire::Deadlock& message, int64_t now_us);

  // core_waiting.cc
  // Every call ends with it (pushes that were sent: outcome unknown); the connections close.
  void EndEverything(Status why);

  const ClientCoreOptions options_;
  Network& network_;
  BufferPool& pool_;
  const LogLine log_;
  ClientObserver* const observer_;
  Completions completions_;
  SchedulerLink scheduler_;
  ControlCalls calls_;
  std::optional<StartCall> start_;
  Status fatal_;  // once not ok, every call ends with it; also when this worker has left
  uint32_t retired_while_leaving_ = 0;

  // The state with which this worker came into a view, and its entry there: its first rounds.
  std::shared_ptr<const wire::ClusterState> joined_;
  wire::WorkerInfo self_;

  SlotBook book_;
  LinksByConn by_conn_;
  Links links_;
  std::shared_ptr<const wire::ClusterState> mapped_;  // the last state with another map
  StateVersion map_version_;                          // its version: requests made before it are looked at
  StateVersion newest_since_;                         // of all slots
  uint64_t reroutes_ = 0;
  StateVersion wanted_version_;  // the newest that a shard has said it has
  int64_t ask_us_ = 0;           // when to ask the scheduler for it again
  int64_t compare_us_ = 0;       // when to compare states with the shards again
  std::optional<wire::StateMessage> passed_;  // by a shard
  bool awaits_state_ = false;    // some round's answers are all there, but not the state they mean
  uint64_t slots_moved_ = 0;     // handed over, and not yet logged
  std::set<uint32_t> moved_to_;
  int64_t moved_log_us_ = 0;

  RecycledMap<uint64_t, Record> requests_;
  RecycledSet<std::pair<int64_t, uint64_t>> deadlines_;
  RecycledDeque<uint64_t> held_;  // async requests behind the bound, in the order of Submit
  std::map<TableId, TableOrder> orders_;
  uint64_t next_request_ = 1, next_frame_ = 1;
  uint64_t submitting_ = 0;  // the request whose Submit runs
  uint64_t unacked_bytes_ = 0;
  int64_t log_us_ = 0;  // when to say again who is awaited
  int64_t blocked_us_ = 0;  // when to report again that all calls wait for other workers
  uint64_t pushes_ = 0, pulls_ = 0, rounds_ = 0;
};

}  // namespace cairn::client

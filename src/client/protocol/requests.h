// The way of a request: checked, held back until its turn, numbered and sent, answered, ended. Its parts
// know one thing each: request_table.h the requests and their deadlines, push_bound.h room for pushes,
// round_turns.h the order of rounds, round_coverage.h when a round is over, rerouting.h where slots are.
// The core's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/log.h"
#include "cairn/status.h"
#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/links/slot_book.h"
#include "client/protocol/client_core.h"
#include "client/protocol/clocks.h"
#include "client/protocol/completions.h"
#include "client/protocol/moved_slots_log.h"
#include "client/protocol/newest_state.h"
#include "client/protocol/part_sender.h"
#include "client/protocol/pulled_values.h"
#include "client/protocol/push_bound.h"
#include "client/protocol/request_table.h"
#include "client/protocol/rerouting.h"
#include "client/protocol/round_coverage.h"
#include "client/protocol/round_turns.h"
#include "client/protocol/waiting_words.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::client {

class Requests {
 public:
  // `observer` may be null. All others outlive this.
  Requests(const ClientCoreOptions& options, const SchedulerLink& scheduler, Links& links, SlotBook& book,
           NewestState& newest, const WaitingWords& words, Completions& completions, ClientObserver* observer,
           const LogLine& log, BufferPool& pool);

  // `closed`: why no new request is taken; ok if it is.
  void Submit(Request request, const Status& closed, int64_t now_us);
  // False if they can't go in turns; then they are as they were.
  bool SubmitInTurns(Request& push, Request& pull, const Status& closed, int64_t now_us);

  // Of a bounded table. `last`: no step follows.
  void EndStep(TableId table, bool last, int64_t now_us);

  // What ShardLink::Listener hears of frames.
  ShardLink::Verdict OnValues(const Outgoing& frame, const ShardLink::Listener::Answer& answer,
                              const wire::ValuesView& values);
  void OnFrameEnd(const Outgoing& frame, const Status& outcome, const ShardLink::Listener::Answer& answer,
                  int64_t now_us);
  void OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message);

  // A new state has come. `self`: this worker's entry, null if there is none.
  void OnNewState(std::shared_ptr<const wire::ClusterState> state, const wire::WorkerInfo* self);
  // The job runs: what is under way follows the slots of the new state, and what waited for it ends.
  void FollowMap(int64_t now_us);
  void OnTick(int64_t now_us);
  // Every call that has not ended ends as at its deadline; what others need of it goes on.
  void ExpireAll(const std::string& text, int64_t now_us);
  // Every call ends (pushes that were sent: outcome unknown). The connections are closed already.
  void EndAll(const Status& why);

  const RequestTable& table() const { return table_; }
  const PushBound& bound() const { return bound_; }
  const Clocks& clocks() const { return clocks_; }
  const RoundTurns& turns() const { return turns_; }
  uint64_t reroutes() const { return rerouting_.reroutes(); }
  uint64_t pushes() const { return pushes_; }
  uint64_t pulls() const { return pulls_; }
  uint64_t rounds() const { return rounds_; }

 private:
  Status Check(const Request& request, const Status& closed);
  uint64_t Admit(Request request, const Status& closed, int64_t now_us);
  void Hold(uint64_t id, int64_t now_us);
  void ReleaseHeld(int64_t now_us);
  void ReleaseRounds(TableId table, int64_t now_us);
  void Release(uint64_t id, Round round, int64_t now_us);
  void Finish(uint64_t id, int64_t now_us);
  void FinishRound(uint64_t id, const RequestRecord& record, int64_t now_us);
  void FinishContribute(uint64_t id, const RequestRecord& record, int64_t now_us);
  void SkipRound(TableId table, int64_t now_us);
  // Null unless it is there and bounded.
  const wire::TableInfo* Bounded(TableId table) const;
  void ForgetPush(const RequestRecord& record, uint64_t id);
  void TellClocks(int64_t now_us);
  void SendClock(const Clocks::Due& clock, int64_t now_us);
  void EndClocksOfGone(int64_t now_us);
  // Those who joined later ask where to begin; shard threads that are new are told what others have heard.
  void FollowClocks(bool new_map, int64_t now_us);
  void CheckDeadlines(int64_t now_us);
  void EndCall(uint64_t id, const std::string& text, int64_t now_us);
  void EndUnsent(uint64_t id, const Status& status, int64_t now_us);

  const SchedulerLink& scheduler_;
  Links& links_;
  const SlotBook& book_;
  const WaitingWords& words_;
  ClientObserver* const observer_;
  BufferPool& pool_;
  RequestTable table_;
  PushBound bound_;
  RoundTurns turns_;
  Clocks clocks_;
  PartSender sender_;
  RoundCoverage coverage_;
  MovedSlotsLog moved_slots_log_;
  Rerouting rerouting_;
  PulledValues values_;
  uint64_t pushes_ = 0, pulls_ = 0, rounds_ = 0;  // that have ended
};

}  // namespace cairn::client

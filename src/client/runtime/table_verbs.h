// The caller's side of pushes, pulls and rounds: checks, waits for room, copies and cuts (client/partition)
// on the caller's thread, hands the prepared request to the loop (table_calls.h) and gives the caller a
// Pending. Any thread but the loop's.
//
// Memory of the callers. A sync contribution, the push of a push-pull and a push that is told to
// borrow the caller's array: their frames refer to it.
// When the core says that such a request has ended, the loop's side first makes every connection let go
// of the request's frames (TcpNetwork::Disown) and only then completes the Pending.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/client.h"
#include "cairn/status.h"
#include "client/partition/error_feedback.h"
#include "client/partition/partition.h"
#include "client/partition/table_call.h"
#include "client/protocol/client_core.h"
#include "client/protocol/split_push.h"
#include "client/protocol/table_calls.h"
#include "client/protocol/user_waits.h"
#include "client/runtime/hand_over.h"
#include "client/runtime/loop_side.h"
#include "client/runtime/unacked_bytes.h"

namespace cairn {

class TableVerbs final : private client::TableCalls::Driver {
 public:
  TableVerbs(const ClientOptions& options, LoopSide& loop, HandOver& hand_over, client::UserWaits& waits,
             client::UnackedBytes& unacked)
      : options_(options), loop_(loop), hand_over_(hand_over), waits_(waits), unacked_(unacked) {}

  Pending Push(const TableHandle& table, const TableCall& call);
  Pending Pull(const TableHandle& table, const TableCall& call);
  Pending PushPull(const std::shared_ptr<const TableHandle>& table, const TableCall& call);
  Pending Done(const TableHandle& table, const TableCall& call);
  // Sync: a round or a phase of one, as the call's arrays and options say.
  struct RoundKind {
    client::RoundPhase phase = client::RoundPhase::kWhole;
    bool pull_after = false;
  };
  Pending Round(const TableHandle& table, const TableCall& call, const RoundKind& kind);
  Pending Contribute(const TableHandle& table, const TableCall& call);
  // Of a bounded table; behind what this thread has begun before.
  Status EndStep(const TableHandle& table, bool last);
  Result<std::vector<RowKey>> Keys(const TableHandle& table, const TableCall& call);

 private:
  struct Submission {
    int64_t deadline_us = 0;
    uint64_t reserved = 0;  // of unacked_; freed when the request has ended
    bool detached = false;  // uses none of the caller's memory
    bool awaited = false;   // the caller does nothing else until it has ended
    RoundInfo* info = nullptr;
    client::ErrorFeedback::Chosen* chosen = nullptr;     // kept back once the request is taken over
    std::shared_ptr<client::SplitPush> split = nullptr;  // this is the last part of it
  };
  // Waits at the bound of unacknowledged bytes, until the deadline.
  Status Reserve(const TableHandle& table, uint64_t bytes, int64_t deadline_us);
  Pending Submit(Result<client::Request> request, const Submission& submission);
  Pending AsyncPushPull(const std::shared_ptr<const TableHandle>& handle, const TableCall& call);

  client::ClientCore& core() override { return loop_.core(); }
  int64_t NowUs() const override { return LoopSide::NowUs(); }
  uint64_t trip() const override { return hand_over_.trip(); }
  void OnBegun() override { loop_.CallBegun(); }
  void OnSubmitted() override { loop_.Publish(); }
  void OnEnded() override { loop_.CallEnded(); }
  void Disown(const client::WeakFrames& frames) override { loop_.Disown(frames); }
  void FreeRoom(uint64_t bytes) override { unacked_.Free(bytes); }

  const ClientOptions& options_;
  LoopSide& loop_;
  HandOver& hand_over_;
  client::UserWaits& waits_;
  client::UnackedBytes& unacked_;
  client::TableCalls calls_{*this};
};

}  // namespace cairn

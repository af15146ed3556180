// The driver of a push-pull on an async table (push_pull.h) that a caller waits for: it keeps what the pull
// may have to be made of again, gives back the caller's memory and room, and completes the Pending. Loop
// only, but for its making.
#pragma once

#include <cstdint>
#include <memory>

#include "client/partition/table_call.h"
#include "client/protocol/push_pull.h"
#include "client/protocol/table_calls.h"
#include "client/runtime/hand_over.h"
#include "client/runtime/loop_side.h"
#include "client/runtime/pending_state.h"
#include "client/runtime/unacked_bytes.h"

namespace cairn {

class PushPullCall final : public client::PushPull::Driver {
 public:
  struct Prepared {
    client::Request push, pull;
    int64_t deadline_us = 0;
    uint64_t reserved = 0;  // of `unacked`
  };
  // The call's arrays live until `state` is completed, but for its mask.
  PushPullCall(LoopSide& loop, client::UnackedBytes& unacked, std::shared_ptr<const TableHandle> table,
               const TableCall& call, std::shared_ptr<PendingState> state, Prepared prepared);

  // In this trip. `self` is this one. Once.
  void Start(uint64_t trip, const std::shared_ptr<PushPullCall>& self);

 private:
  int64_t NowUs() const override { return LoopSide::NowUs(); }
  Result<client::Request> PreparePull() override;
  void OnPushEnded() override;
  void OnEnded(const Status& outcome) override;

  LoopSide& loop_;
  client::UnackedBytes& unacked_;
  const std::shared_ptr<const TableHandle> table_;
  TableCall call_;
  const std::shared_ptr<PendingState> state_;
  Prepared prepared_;
  client::WeakFrames frames_;  // of the push
  client::PushPull both_;
};

}  // namespace cairn

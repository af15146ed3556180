// How a call gets from its caller's thread to whoever is the client's loop; what decides is CallGate.
// Thread-safe but for trip().
#pragma once

#include <cstdint>
#include <memory>

#include "base/call.h"
#include "base/mutex.h"
#include "cairn/status.h"
#include "client/protocol/call_gate.h"
#include "client/protocol/user_waits.h"
#include "client/runtime/pending_state.h"
#include "transport/tcp/turn.h"

namespace cairn {

class HandOver final : private client::CallGate::Way {
 public:
  HandOver(std::shared_ptr<transport::LoopTurn> turn, std::shared_ptr<client::UserWaits> waits);

  // Any thread but the loop's.
  // Begins a call: posts it to the loop, or adds it to this thread's trip, which `state` remembers.
  // Unless the client is closed.
  enum class Then { kGoesOn, kWaits };  // what the caller does
  Status Begin(Call<void()> call, PendingState& state, Then then = Then::kGoesOn);
  // Calls of this thread are collected from now on, until as many have ended it.
  std::shared_ptr<client::OpenTrip> BeginTrip();
  void EndTrip(const client::OpenTrip* trip);
  // What this thread has begun in its trip goes now.
  void SendTripHere();
  // No call is taken after it; trips that are open are sent. False if it was closed before.
  bool Close(const Status& why);
  // Why no call is taken; ok if one is.
  Status closed() const;

  // Loop: Request::trip of what is being submitted.
  uint64_t trip() const { return running_.number(); }

 private:
  void Post(Call<void()> call) override;
  void Post(client::OpenTrip::Calls calls) override;

  const std::shared_ptr<transport::LoopTurn> turn_;
  const std::shared_ptr<client::UserWaits> waits_;
  client::RunningTrip running_;  // loop only

  mutable Mutex mutex_;
  client::CallGate gate_ CAIRN_GUARDED_BY(mutex_){*this};
};

}  // namespace cairn

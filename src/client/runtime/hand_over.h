// How a call gets from its caller's thread to whoever is the client's loop: at once, or with the other
// calls of the thread's trip; and that a closed client takes no more. Thread-safe but for trip().
#pragma once

#include <cstdint>
#include <memory>

#include "base/call.h"
#include "base/mutex.h"
#include "cairn/status.h"
#include "client/protocol/open_trips.h"
#include "client/protocol/user_waits.h"
#include "client/runtime/pending_state.h"
#include "transport/tcp/turn.h"

namespace cairn {

class HandOver {
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
  uint64_t trip() const { return trip_; }

 private:
  void PostTrip(client::OpenTrip::Calls calls);

  const std::shared_ptr<transport::LoopTurn> turn_;
  const std::shared_ptr<client::UserWaits> waits_;
  uint64_t trip_ = 0;  // loop only

  mutable Mutex mutex_;
  client::OpenTrips trips_ CAIRN_GUARDED_BY(mutex_);
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  Status closed_why_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

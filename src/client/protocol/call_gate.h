// How the calls of a client's callers get to its core: at once, or with the other calls of the caller's
// trip; and that a closed client takes no more. Not thread-safe: runtime/hand_over.h guards it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/call.h"
#include "cairn/status.h"
#include "client/protocol/caller_id.h"
#include "client/protocol/open_trip.h"
#include "client/protocol/open_trips.h"

namespace cairn::client {

class CallGate {
 public:
  // Takes calls to the core, which runs them in the order of Post (RunningTrip).
  class Way {
   public:
    virtual ~Way() = default;
    virtual void Post(Call<void()> call) = 0;
    virtual void Post(OpenTrip::Calls calls) = 0;
  };
  explicit CallGate(Way& way)
      : way_(way), trips_([this](OpenTrip::Calls calls) { way_.Post(std::move(calls)); }) {}

  // Posts the call, or adds it to the caller's trip: that one is in `*trip` then, else null. Not ok: the
  // client is closed, and the call is never made.
  Status Begin(CallerId caller, Call<void()> call, std::shared_ptr<OpenTrip>* trip);
  // The caller's calls are collected from now on, until as many have ended it.
  std::shared_ptr<OpenTrip> BeginTrip(CallerId caller) { return trips_.Begin(caller); }
  // True: something may have been posted.
  bool EndTrip(const OpenTrip* trip) { return trips_.End(trip); }
  // What the caller has begun in its trip goes now.
  void SendTripOf(CallerId caller);
  // No call is taken after it; trips that are open are sent. False if it was closed before.
  bool Close(const Status& why);
  // Why no call is taken; ok if one is.
  Status closed() const { return closed_ ? closed_why_ : Status::Ok(); }

 private:
  Way& way_;
  OpenTrips trips_;
  bool closed_ = false;
  Status closed_why_;
};

// Runs what was posted, and numbers it: calls that were posted together have one number
// (Request::trip). The core's thread.
class RunningTrip {
 public:
  void Run(Call<void()>& call) {
    ++number_;
    call();
  }
  void Run(OpenTrip::Calls& calls) {
    ++number_;
    for (Call<void()>& call : calls) call();
  }
  uint64_t number() const { return number_; }

 private:
  uint64_t number_ = 0;
};

}  // namespace cairn::client

// A push to an async table and, behind it on the same connections, a pull: one call, mostly one round trip.
// The pull's answer counts only if the push had ended before it and no connection was rewound meanwhile:
// otherwise the pull may have overtaken the push, and is repeated once the push has ended. For whoever
// drives the core.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/status.h"
#include "client/protocol/client_core.h"

namespace cairn::client {

class PushPull {
 public:
  // Who begins it: makes requests, and is told.
  class Driver {
   public:
    virtual ~Driver() = default;
    virtual int64_t NowUs() const = 0;
    // The pull once more, for the core's state of now.
    virtual Result<Request> PreparePull() = 0;
    // The push uses nothing any more, neither of the caller's memory nor of its room.
    virtual void OnPushEnded() = 0;
    // Once. Nothing writes to the caller's array after it.
    virtual void OnEnded(const Status& outcome) = 0;
  };

  PushPull(ClientCore& core, Driver& driver) : core_(core), driver_(driver) {}

  // Both are prepared, and have no deadline, trip or end yet. `alive` is what this and the driver are parts
  // of: the requests keep it, so it goes with the core if that ends before them. Once.
  void Start(Request push, Request pull, uint64_t trip, int64_t deadline_us,
             const std::shared_ptr<void>& alive);

 private:
  void ExpectPull(Request& pull, const std::shared_ptr<void>& alive);
  void GoOn(const std::shared_ptr<void>& alive);

  ClientCore& core_;
  Driver& driver_;
  int64_t deadline_us_ = 0;
  uint64_t rewinds_ = 0;  // of the core, when both were submitted
  bool push_ended_ = false;
  Status push_status_;
  bool pull_running_ = false;
  bool pull_after_push_ = false;  // the pull was submitted when the push had ended
  bool pull_counts_ = false;
  Status pull_status_;
};

}  // namespace cairn::client

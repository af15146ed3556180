// What a Pending waits for. The loop completes it once, any thread may wait: it is the loop for a
// while if it can (turn.h), else pauses and yields, then sleeps; nobody is woken by a system call
// unless somebody sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "cairn/client.h"
#include "cairn/status.h"
#include "client/protocol/open_trip.h"
#include "client/protocol/user_waits.h"
#include "transport/tcp/turn.h"

namespace cairn {

class PendingState {
 public:
  // `outlives_caller`: the operation uses none of the caller's memory, so the Pending may be
  // dropped while it is under way.
  explicit PendingState(bool outlives_caller) : detached(outlives_caller) {}

  // The caller's end of an operation.
  static Pending PendingOf(std::shared_ptr<PendingState> state) { return Pending(std::move(state)); }
  // Of one that has ended already.
  static Pending Ready(Status status);

  void Complete(Status result);
  const Status& Wait();
  // False if it is still under way then (monotonic microseconds).
  bool WaitUntil(int64_t until_us);
  bool ready() const { return phase.load(std::memory_order_acquire) == kReady; }

  const bool detached;
  // The trip that the call was begun in, if any: who waits for it before the trip has ended sends
  // it. Set before anybody else has this state.
  std::shared_ptr<client::OpenTrip> trip;
  // Of the client's loop, which completes it: who waits may help. Set before anybody else has it.
  std::shared_ptr<transport::LoopTurn> turn;
  // Of the client, which is told who sleeps. Set before anybody else has it.
  std::shared_ptr<client::UserWaits> waits;

 private:
  enum Phase : uint32_t { kRunning = 0, kAwaited = 1, kReady = 2 };  // kAwaited: somebody sleeps
  void Spin(int64_t until_us) const;
  bool StillRuns();
  void SleepUntil(int64_t until_us) CAIRN_EXCLUDES(mutex);

  std::atomic<uint32_t> phase{kRunning};
  Status status;  // written before kReady
  Mutex mutex;    // guards nothing but the sleep
  Condition ended;
};

}  // namespace cairn

// Waiting that Ctrl-C can end. Python's handlers of signals run between the slices of a wait, with
// the GIL; the wait itself is without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "cairn/status.h"

namespace cairn::python {

inline constexpr int64_t kSliceMs = 50;

// Calls `ended(kSliceMs)` with the GIL released until it gives true or `timeout_ms` (negative:
// none) have passed; true if it ended. Raises what a handler of a signal raises.
bool WaitInSlices(const std::function<bool(int64_t slice_ms)>& ended, int64_t timeout_ms = -1);

// For a thread that waits in C++ with the GIL released: true if a handler of a signal has raised, and
// then that exception is set. RaiseIfSet throws it, back under the GIL.
bool SignalRaised();
void RaiseIfSet();

// A call of the C++ API that blocks and knows no slices (connect, barrier, …), on a thread of its
// own. Who waits for it may be interrupted; the call itself goes on and can be waited for again.
class BlockingCall {
 public:
  // Runs `call` at once. It must own what it uses.
  static std::shared_ptr<BlockingCall> Start(std::function<Status()> call);

  // Returns when the call has ended, with its status. Raises what a handler of a signal raises;
  // the call is abandoned then.
  Status Wait();
  // The same for at most so long; nothing if it has not ended.
  std::optional<Status> WaitFor(int64_t timeout_ms);
  // Its waiter was interrupted: whoever makes the same call again should wait for this one.
  bool abandoned() const { return abandoned_; }

 private:
  void End(Status status);
  bool EndedWithin(int64_t milliseconds);

  Mutex mutex_;
  Condition changed_;
  std::optional<Status> result_ CAIRN_GUARDED_BY(mutex_);
  bool abandoned_ = false;  // guarded by the GIL
};

// The one call of a kind under way, or a new one: a call that was abandoned is taken up again.
Status WaitForOne(std::shared_ptr<BlockingCall>& under_way, std::function<Status()> call);

}  // namespace cairn::python

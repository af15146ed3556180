// The turn of a loop: whoever has it is the loop, and may run what lives on it. The loop's own thread
// has it whenever it runs; while it sleeps, a thread that is about to wait for an answer may take the
// turn and look for the answer itself. So a call and its answer need no second thread: a push of 4 KB
// through shared memory takes 5 µs, and took 20 when the loop's thread had to be handed the call and
// hand back the answer (docs/decisions/0024-who-waits-is-the-loop.md).
//
// Only rings are looked at by others; what comes by a descriptor (TCP, timers) wakes the loop's thread,
// which then waits for its turn. It outlives the loop, so that a waiter may hold on to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/call.h"
#include "base/mutex.h"

namespace cairn::transport {

class Loop;

class LoopTurn {
 public:
  explicit LoopTurn(Loop* loop) : loop_(loop) {}

  // Any thread but the loop's. Adds a call that the next one who has the turn runs, in the order of
  // the adds. Must be followed by Help or HelpUntil, when the caller holds no lock that the call needs.
  void Add(Call<void()> call);
  enum class Stay { kNo, kUntilWritten };
  // Runs what was added, now and here, unless somebody has the turn, who will then. kUntilWritten: the
  // caller will wait for it at once, and so stays the loop (for some milliseconds at most) until all is
  // written; else the loop's thread would write what does not fit at once, beside a caller that waits.
  void Help(Stay stay = Stay::kNo);
  // Is the loop until ready(), or for as long as is worth spinning. False at once if that makes no
  // sense (nothing to look at, or the loop has ended).
  bool HelpUntil(const std::function<bool()>& ready, int64_t until_us);

 private:
  friend class Loop;
  bool TryTake() CAIRN_TRY_ACQUIRE(true, turn_);
  void Take() CAIRN_ACQUIRE(turn_);
  // False: calls came that nobody has seen; the turn is given all the same.
  bool Give() CAIRN_RELEASE(turn_);
  // Whoever has the turn.
  bool RunAdded();
  // Somebody would rather be the loop than wait for it.
  bool wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }
  bool loop_waits() const { return loop_waits_.load(std::memory_order_relaxed); }
  void End();
  // What the loop runs, it runs in its turn: it remembers that for itself (has_turn).
  void AssertTaken() const CAIRN_ASSERT_CAPABILITY(turn_) {}

  Mutex turn_;
  Loop* loop_ CAIRN_GUARDED_BY(turn_);  // null: it has ended
  std::vector<Call<void()>> running_ CAIRN_GUARDED_BY(turn_);
  std::atomic<int> wanted_{0};
  std::atomic<bool> loop_waits_{false};  // the loop's own thread waits for its turn

  Mutex added_mutex_;
  std::vector<Call<void()>> added_ CAIRN_GUARDED_BY(added_mutex_);
  std::atomic<bool> any_added_{false};
};

}  // namespace cairn::transport

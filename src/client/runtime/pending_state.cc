#include "client/runtime/pending_state.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/recycled.h"
#include "transport/tcp/loop.h"

namespace cairn {
using transport::Loop;

namespace {
constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();
}

Pending PendingState::Ready(Status status) {
  auto state = MakeRecycled<PendingState>(true);
  state->Complete(std::move(status));
  return PendingOf(std::move(state));
}

void PendingState::Complete(Status result) {
  CAIRN_CHECK(!ready());
  status = std::move(result);
  if (phase.exchange(kReady, std::memory_order_acq_rel) != kAwaited) return;
  // Whoever has seen kAwaited holds the mutex until it sleeps.
  {
    MutexLock asleep(mutex);
  }
  ended.WakeAll();
}

void PendingState::Spin(int64_t until_us) const {
  if (turn && turn->HelpUntil([this] { return ready(); }, until_us)) return;
  for (int i = 0; i < Loop::kPauses && !ready(); ++i) {
    Loop::Pause();
  }
  if (ready()) return;
  until_us = std::min(until_us, Loop::NowUs() + Loop::kYieldUs);
  do {
    sched_yield();
  } while (!ready() && Loop::NowUs() < until_us);
}

// Before every wait: nothing is waited for that has not been handed over.
bool PendingState::StillRuns() {
  if (ready()) return false;
  if (trip) trip->Send();
  return true;
}

void PendingState::SleepUntil(int64_t until_us) {
  if (waits) waits->Enter();
  {
    MutexLock lock(mutex);
    uint32_t running = kRunning;
    phase.compare_exchange_strong(running, kAwaited, std::memory_order_acq_rel);
    while (!ready()) {
      if (until_us == kForEver)
        ended.Wait(mutex);
      else if (!ended.WaitUntil(mutex, Condition::Clock::time_point(std::chrono::microseconds(until_us))))
        break;
    }
  }
  if (waits) waits->Leave(Loop::NowUs());
}

const Status& PendingState::Wait() {
  if (StillRuns()) Spin(kForEver);
  if (!ready()) SleepUntil(kForEver);
  return status;
}

bool PendingState::WaitUntil(int64_t until_us) {
  if (StillRuns()) Spin(until_us);
  if (!ready()) SleepUntil(until_us);
  return ready();
}

}  // namespace cairn

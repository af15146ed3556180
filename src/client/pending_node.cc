// Pending: the caller's end of an operation.
#include <sched.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "client/pending_state.h"
#include "transport/tcp/loop.h"

namespace cairn {
using transport::Loop;

void Pending::State::Complete(Status result) {
  CAIRN_CHECK(!ready());
  status = std::move(result);
  if (phase.exchange(kReady, std::memory_order_acq_rel) == kAwaited) phase.notify_all();
}

const Status& Pending::State::Wait() {
  for (int i = 0; i < Loop::kPauses && !ready(); ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  if (!ready()) {
    const int64_t until_us = Loop::NowUs() + Loop::kYieldUs;
    do {
      sched_yield();
    } while (!ready() && Loop::NowUs() < until_us);
  }
  while (!ready()) {
    uint32_t running = kRunning;
    phase.compare_exchange_strong(running, kAwaited, std::memory_order_acq_rel);
    phase.wait(kAwaited, std::memory_order_acquire);
  }
  return status;
}

Pending::Pending() = default;
Pending::Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this != &other) {
    if (state_ && !state_->detached) state_->Wait();
    state_ = std::move(other.state_);
  }
  return *this;
}

Pending::~Pending() {
  if (state_ && !state_->detached) state_->Wait();
}

Status Pending::Wait() { return state_ ? state_->Wait() : Status::Ok(); }
bool Pending::ready() const { return !state_ || state_->ready(); }

}  // namespace cairn

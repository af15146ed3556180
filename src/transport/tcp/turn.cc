#include "transport/tcp/turn.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "transport/tcp/loop.h"

namespace cairn::transport {

void LoopTurn::Add(Call<void()> call) {
  const MutexLock lock(added_mutex_);
  added_.push_back(std::move(call));
  any_added_.store(true, std::memory_order_relaxed);
}

bool LoopTurn::TryTake() {
  // With the fence in Give: whoever adds a call and then finds the turn taken, is seen by him who has it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !loop_waits() && turn_.TryLock();
}

void LoopTurn::Take() {
  if (turn_.TryLock()) return;
  loop_waits_.store(true, std::memory_order_relaxed);
  turn_.Lock();
  loop_waits_.store(false, std::memory_order_relaxed);
}

bool LoopTurn::Give() {
  turn_.Unlock();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !any_added_.load(std::memory_order_relaxed);
}

bool LoopTurn::RunAdded() {
  AssertTaken();
  if (!any_added_.load(std::memory_order_relaxed)) return false;
  {
    const MutexLock lock(added_mutex_);
    std::swap(added_, running_);
    any_added_.store(false, std::memory_order_relaxed);
  }
  for (Call<void()>& call : running_) call();
  running_.clear();
  return true;
}

void LoopTurn::Help(Stay stay) {
  do {
    if (!TryTake()) return;
    if (loop_ != nullptr) loop_->HelpOnce(stay == Stay::kUntilWritten);
  } while (!Give());
}

bool LoopTurn::HelpUntil(const std::function<bool()>& ready, int64_t until_us) {
  wanted_.fetch_add(1, std::memory_order_relaxed);
  bool helped = false;
  const int64_t end_us = std::min(until_us, Loop::NowUs() + Loop::kYieldUs);
  for (int tries = 1; !ready(); ++tries) {
    if (TryTake()) {
      helped = loop_ != nullptr && loop_->HelpUntil(ready, until_us);
      if (!Give()) Help();
      break;
    }
    Loop::Pause();
    if (tries % Loop::kPauses != 0) continue;
    if (Loop::NowUs() >= end_us) {
      helped = true;  // it was waited for long enough
      break;
    }
    sched_yield();
  }
  wanted_.fetch_sub(1, std::memory_order_relaxed);
  return helped;
}

void LoopTurn::End() {
  const MutexLock turn(turn_);
  if (loop_ == nullptr) return;
  loop_ = nullptr;
  RunAdded();
}

}  // namespace cairn::transport

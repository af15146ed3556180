#include "waiting.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "forked.h"

namespace cairn::python {
namespace nb = nanobind;

bool WaitInSlices(const std::function<bool(int64_t slice_ms)>& ended, int64_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begun = Clock::now();
  while (true) {
    int64_t slice_ms = kSliceMs;
    if (timeout_ms >= 0) {
      const int64_t spent_ms =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun).count();
      slice_ms = std::clamp<int64_t>(timeout_ms - spent_ms, 0, kSliceMs);
    }
    bool done = false;
    {
      nb::gil_scoped_release released;
      done = ended(slice_ms);
    }
    if (done) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (timeout_ms >= 0 && slice_ms < kSliceMs) return false;
  }
}

bool SignalRaised() {
  nb::gil_scoped_acquire acquired;
  return PyErr_CheckSignals() != 0;
}

void RaiseIfSet() {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

std::shared_ptr<BlockingCall> BlockingCall::Start(std::function<Status()> call) {
  auto state = std::make_shared<BlockingCall>();
  auto running = std::make_shared<Running>();
  std::thread([state, running, call = std::move(call)]() mutable {
    Status status = call();
    call = nullptr;  // what it owned goes before anybody hears of the end
    running.reset();
    state->End(std::move(status));
  }).detach();
  return state;
}

void BlockingCall::End(Status status) {
  const MutexLock lock(mutex_);
  result_ = std::move(status);
  changed_.WakeAll();
}

bool BlockingCall::EndedWithin(int64_t milliseconds) {
  const MutexLock lock(mutex_);
  const auto until = Condition::Clock::now() + std::chrono::milliseconds(milliseconds);
  while (!result_ && changed_.WaitUntil(mutex_, until)) continue;
  return result_.has_value();
}

std::optional<Status> BlockingCall::WaitFor(int64_t timeout_ms) {
  try {
    if (!WaitInSlices([this](int64_t ms) { return EndedWithin(ms); }, timeout_ms)) return std::nullopt;
  } catch (...) {
    abandoned_ = true;
    throw;
  }
  abandoned_ = false;
  const MutexLock lock(mutex_);
  return result_;
}

Status BlockingCall::Wait() { return *WaitFor(-1); }

Status WaitForOne(std::shared_ptr<BlockingCall>& under_way, std::function<Status()> call) {
  if (!under_way || !under_way->abandoned()) under_way = BlockingCall::Start(std::move(call));
  const std::shared_ptr<BlockingCall> mine = under_way;
  Status status = mine->Wait();
  if (under_way == mine) under_way.reset();
  return status;
}

}  // namespace cairn::python

#include "client/runtime/hand_over.h"

#include <atomic>
#include <utility>

namespace cairn {
using client::CallerId;
using client::OpenTrip;
using transport::LoopTurn;

namespace {
CallerId ThisThread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const CallerId here{threads.fetch_add(1, std::memory_order_relaxed)};
  return here;
}
}  // namespace

HandOver::HandOver(std::shared_ptr<LoopTurn> turn, std::shared_ptr<client::UserWaits> waits)
    : turn_(std::move(turn)), waits_(std::move(waits)) {}

Status HandOver::Begin(Call<void()> call, PendingState& state, Then then) {
  state.turn = turn_;
  state.waits = waits_;
  {
    // Under the lock, so that whatever was begun runs before Close's own call.
    MutexLock lock(mutex_);
    if (Status closed = gate_.Begin(ThisThread(), std::move(call), &state.trip); !closed.ok()) return closed;
    if (state.trip != nullptr) return Status::Ok();
  }
  turn_->Help(then == Then::kWaits ? LoopTurn::Stay::kUntilWritten : LoopTurn::Stay::kNo);
  return Status::Ok();
}

void HandOver::Post(Call<void()> call) {
  turn_->Add([this, call = std::move(call)]() mutable { running_.Run(call); });
}

void HandOver::Post(OpenTrip::Calls calls) {
  turn_->Add([this, calls = std::move(calls)]() mutable { running_.Run(calls); });
}

void HandOver::SendTripHere() {
  {
    MutexLock lock(mutex_);
    gate_.SendTripOf(ThisThread());
  }
  turn_->Help();
}

std::shared_ptr<OpenTrip> HandOver::BeginTrip() {
  MutexLock lock(mutex_);
  return gate_.BeginTrip(ThisThread());
}

void HandOver::EndTrip(const OpenTrip* trip) {
  {
    // Sent under the lock: before Close's own call, or by Close.
    MutexLock lock(mutex_);
    if (!gate_.EndTrip(trip)) return;
  }
  turn_->Help();
}

bool HandOver::Close(const Status& why) {
  MutexLock lock(mutex_);
  return gate_.Close(why);
}

Status HandOver::closed() const {
  MutexLock lock(mutex_);
  return gate_.closed();
}

}  // namespace cairn

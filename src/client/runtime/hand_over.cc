#include "client/runtime/hand_over.h"

#include <thread>
#include <utility>

namespace cairn {
using client::OpenTrip;
using transport::LoopTurn;

HandOver::HandOver(std::shared_ptr<LoopTurn> turn, std::shared_ptr<client::UserWaits> waits)
    : turn_(std::move(turn)),
      waits_(std::move(waits)),
      trips_([this](OpenTrip::Calls calls) { PostTrip(std::move(calls)); }) {}

Status HandOver::Begin(Call<void()> call, PendingState& state, Then then) {
  state.turn = turn_;
  state.waits = waits_;
  {
    // Under the lock, so that whatever was begun runs before Close's own call.
    MutexLock lock(mutex_);
    if (closed_) return closed_why_;
    if (state.trip = trips_.Of(std::this_thread::get_id()); state.trip) {
      state.trip->Add(std::move(call));
      return Status::Ok();
    }
    turn_->Add([this, call = std::move(call)]() mutable {
      ++trip_;
      call();
    });
  }
  turn_->Help(then == Then::kWaits ? LoopTurn::Stay::kUntilWritten : LoopTurn::Stay::kNo);
  return Status::Ok();
}

void HandOver::PostTrip(OpenTrip::Calls calls) {
  turn_->Add([this, calls = std::move(calls)]() mutable {
    ++trip_;
    for (Call<void()>& call : calls) call();
  });
}

void HandOver::SendTripHere() {
  {
    MutexLock lock(mutex_);
    if (const auto trip = trips_.Of(std::this_thread::get_id())) trip->Send();
  }
  turn_->Help();
}

std::shared_ptr<OpenTrip> HandOver::BeginTrip() {
  MutexLock lock(mutex_);
  return trips_.Begin(std::this_thread::get_id());
}

void HandOver::EndTrip(const OpenTrip* trip) {
  {
    // Sent under the lock: before Close's own call, or by Close.
    MutexLock lock(mutex_);
    if (!trips_.End(trip)) return;
  }
  turn_->Help();
}

bool HandOver::Close(const Status& why) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  closed_ = true;
  closed_why_ = why;
  trips_.SendAll();  // so that its calls end
  return true;
}

Status HandOver::closed() const {
  MutexLock lock(mutex_);
  return closed_ ? closed_why_ : Status::Ok();
}

}  // namespace cairn

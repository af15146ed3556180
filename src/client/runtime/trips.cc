// ClientImpl's hand-over to its thread: call by call, or a Trip's calls together.
#include <algorithm>
#include <utility>

#include "client/runtime/client_impl.h"

namespace cairn {
using client::OpenTrip;

Status ClientImpl::Begin(Call<void()> call, Pending::State& state, Then then) {
  state.turn = loop_.turn();
  state.waits = waits_;
  {
    // Under the lock, so that whatever was begun runs before Close's own call.
    std::lock_guard lock(mutex_);
    if (closed_) return closed_why_;
    if (state.trip = TripHere(); state.trip) {
      state.trip->Add(std::move(call));
      return Status::Ok();
    }
    loop_.turn()->Add([this, call = std::move(call)]() mutable {
      ++trip_;
      call();
    });
  }
  using transport::LoopTurn;
  loop_.turn()->Help(then == Then::kWaits ? LoopTurn::Stay::kUntilWritten : LoopTurn::Stay::kNo);
  return Status::Ok();
}

void ClientImpl::PostTrip(OpenTrip::Calls calls) {
  loop_.turn()->Add([this, calls = std::move(calls)]() mutable {
    ++trip_;
    for (Call<void()>& call : calls) call();
  });
}

std::shared_ptr<OpenTrip> ClientImpl::TripHere() const {
  const std::thread::id here = std::this_thread::get_id();
  for (const TripOfThread& open : trips_) {
    if (open.thread == here) return open.trip;
  }
  return nullptr;
}

void ClientImpl::SendTripHere() {
  {
    std::lock_guard lock(mutex_);
    if (const auto trip = TripHere()) trip->Send();
  }
  loop_.turn()->Help();
}

std::shared_ptr<OpenTrip> ClientImpl::BeginTrip() {
  std::lock_guard lock(mutex_);
  const std::thread::id here = std::this_thread::get_id();
  auto it = std::find_if(trips_.begin(), trips_.end(),
                         [&](const TripOfThread& open) { return open.thread == here; });
  if (it == trips_.end()) {
    auto post = [this](OpenTrip::Calls calls) { PostTrip(std::move(calls)); };
    it = trips_.insert(it, {here, 0, std::make_shared<OpenTrip>(std::move(post))});
  }
  ++it->depth;
  return it->trip;
}

void ClientImpl::EndTrip(const OpenTrip* trip) {
  {
    // Sent under the lock: before Close's own call, or by Close.
    std::lock_guard lock(mutex_);
    auto it = std::find_if(trips_.begin(), trips_.end(),
                           [&](const TripOfThread& open) { return open.trip.get() == trip; });
    if (--it->depth > 0) return;
    it->trip->Send();
    trips_.erase(it);
  }
  loop_.turn()->Help();
}

}  // namespace cairn

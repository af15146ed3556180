#include "client/protocol/open_trip.h"

#include <utility>

namespace cairn::client {

void OpenTrip::Add(Call<void()> call) {
  MutexLock lock(mutex_);
  calls_.push_back(std::move(call));
}

void OpenTrip::Send() {
  MutexLock lock(mutex_);
  if (calls_.empty()) return;
  post_(std::exchange(calls_, {}));
}

}  // namespace cairn::client

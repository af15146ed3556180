#include "client/protocol/open_trips.h"

#include <algorithm>

#include "base/check.h"

namespace cairn::client {

std::shared_ptr<OpenTrip> OpenTrips::Begin(std::thread::id thread) {
  auto it =
      std::find_if(open_.begin(), open_.end(), [&](const OfThread& open) { return open.thread == thread; });
  if (it == open_.end()) it = open_.insert(it, {thread, 0, std::make_shared<OpenTrip>(post_)});
  ++it->depth;
  return it->trip;
}

bool OpenTrips::End(const OpenTrip* trip) {
  const auto it =
      std::find_if(open_.begin(), open_.end(), [&](const OfThread& open) { return open.trip.get() == trip; });
  CAIRN_CHECK(it != open_.end() && it->depth > 0);
  if (--it->depth > 0) return false;
  it->trip->Send();
  open_.erase(it);
  return true;
}

std::shared_ptr<OpenTrip> OpenTrips::Of(std::thread::id thread) const {
  for (const OfThread& open : open_) {
    if (open.thread == thread) return open.trip;
  }
  return nullptr;
}

void OpenTrips::SendAll() {
  for (const OfThread& open : open_) open.trip->Send();
}

}  // namespace cairn::client

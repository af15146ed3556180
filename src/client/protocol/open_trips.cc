#include "client/protocol/open_trips.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::client {

std::shared_ptr<OpenTrip> OpenTrips::Begin(CallerId caller) {
  auto it =
      std::find_if(open_.begin(), open_.end(), [&](const OfCaller& open) { return open.caller == caller; });
  if (it == open_.end()) it = open_.insert(it, {caller, 0, std::make_shared<OpenTrip>(post_)});
  ++it->depth;
  return it->trip;
}

bool OpenTrips::End(const OpenTrip* trip) {
  const auto it =
      std::find_if(open_.begin(), open_.end(), [&](const OfCaller& open) { return open.trip.get() == trip; });
  CAIRN_CHECK(it != open_.end() && it->depth > 0);
  if (--it->depth > 0) return false;
  it->trip->Send();
  open_.erase(it);
  return true;
}

std::shared_ptr<OpenTrip> OpenTrips::Of(CallerId caller) const {
  for (const OfCaller& open : open_) {
    if (open.caller == caller) return open.trip;
  }
  return nullptr;
}

void OpenTrips::SendAll() {
  if (CAIRN_BUG(kTripLost)) return;
  for (const OfCaller& open : open_) open.trip->Send();
}

}  // namespace cairn::client

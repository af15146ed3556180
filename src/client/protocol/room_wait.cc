#include "client/protocol/room_wait.h"

#include "base/bounds.h"
#include "base/planted.h"

namespace cairn::client {

RoomWait::Next RoomWait::OnFull(bool closed, bool interrupted, int64_t now_us) {
  if (!std::exchange(sent_, true) && !CAIRN_BUG(kTripKeepsRoom)) {
    CAIRN_AT_BOUND(kReservedBytes);
    return Next::kSendTrip;
  }
  if (closed) return Next::kClosed;
  if (interrupted) return Next::kInterrupted;
  return now_us >= deadline_us_ ? Next::kFull : Next::kTryAgain;
}

}  // namespace cairn::client

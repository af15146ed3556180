// What a caller does that finds no room at its client's bound (byte_bound.h): one wait, try by try. The
// caller's thread.
#pragma once

#include <cstdint>
#include <utility>

namespace cairn::client {

class RoomWait {
 public:
  explicit RoomWait(int64_t deadline_us) : deadline_us_(deadline_us) {}

  enum class Next {
    kSendTrip,     // what it has begun in its own trip takes up room until that is sent; then it tries again
    kTryAgain,     // when it is woken
    kClosed,       // the client takes no more calls
    kInterrupted,  // its program wants it to stop
    kFull,         // its time is over
  };
  // After a try that found no room. `interrupted` is not looked at before its trip is sent.
  Next OnFull(bool closed, bool interrupted, int64_t now_us);
  int64_t deadline_us() const { return deadline_us_; }

 private:
  const int64_t deadline_us_;
  bool sent_ = false;
};

}  // namespace cairn::client

// A word of a node that counts only when it has been said for a while without a break: what comes all at
// once, or after a silence, may be the last words of a node that has died meanwhile. No I/O, no clock.
#pragma once

#include <cstdint>

namespace cairn::scheduler {

class RepeatedWord {
 public:
  // To be called for every report of the node, whether it says the word or not.
  void OnReport(bool said, int64_t now_us, int64_t heartbeat_us) {
    const bool after_silence = now_us - reported_us_ > 2 * heartbeat_us;
    reported_us_ = now_us;
    if (!said || since_us_ < 0 || after_silence) since_us_ = said ? now_us : -1;
    counts_ = said && now_us - since_us_ >= heartbeat_us / 2;
  }
  bool counts() const { return counts_; }

 private:
  int64_t reported_us_ = 0;
  int64_t since_us_ = -1;  // -1: the last report did not say it
  bool counts_ = false;
};

}  // namespace cairn::scheduler

// A push that is handed over in parts, each a request of its own: to the caller it is one, which ends with
// the last of them. What became of it is told so that a caller who tries again never applies a part twice
// without knowing. For whoever has the loop's turn.
#pragma once

#include <cstdint>

#include "base/call.h"
#include "cairn/status.h"

namespace cairn::client {

class EarlyParts {
 public:
  uint64_t trip = 0;  // all go in one
  uint64_t push = 0;  // Request::push
  Call<void()> all_ended;  // set with the last part

  void Begun() { ++under_way_; }
  void Ended(const Status& how) {
    const bool refused = !how.ok() && how.code() != Code::kOutcomeUnknown;
    reached_ |= !refused;
    if (wrong_.ok()) wrong_ = how;
    if (--under_way_ == 0 && all_ended) all_ended();
  }
  // Nothing of it was sent, and nothing is to be.
  bool refused() const { return under_way_ == 0 && !reached_ && !wrong_.ok(); }
  Status outcome() const {
    if (wrong_.ok() || !reached_ || wrong_.code() == Code::kOutcomeUnknown) return wrong_;
    return {Code::kOutcomeUnknown, wrong_.message() + "; other parts of this push were sent, and may have been applied"};
  }

 private:
  int64_t under_way_ = 0;
  bool reached_ = false;  // a part was applied, or may have been
  Status wrong_;          // the first that went wrong
};

}  // namespace cairn::client

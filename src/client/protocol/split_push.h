// A push that is handed over in parts, each a request of its own: to the caller it is one, which ends with
// the last of them. Decides which parts go, what makes them one push to the core, and what became of it: it
// is told so that a caller who tries again never applies a part twice without knowing. For whoever has the
// loop's turn.
#pragma once

#include <cstdint>

#include "base/call.h"
#include "cairn/status.h"
#include "client/protocol/client_core.h"

namespace cairn::client {

class SplitPush {
 public:
  // Gives every push in parts of one client another Request::push.
  class Numbers {
   public:
    uint64_t Next() { return ++last_; }

   private:
    uint64_t last_ = 0;
  };

  // `whole`: bytes of all its parts together.
  explicit SplitPush(uint64_t whole) : whole_(whole) {}

  // A part that is not the last is to be submitted now, in this trip (that of the first part counts: all go
  // in one). False: it must not be, because those before it were refused. If true, Ended follows once.
  bool BeginPart(Request& part, uint64_t trip, Numbers& numbers);
  // The same for the last part. `all_ended` runs when all parts have ended; outcome() is what the caller is
  // told. Ended follows once in either case: at once, with outcome(), if this says false.
  bool BeginLast(Request& part, Call<void()> all_ended);
  void Ended(const Status& how);
  Status outcome() const;

 private:
  // Nothing of it was sent, and nothing is to be.
  bool refused() const { return under_way_ == 0 && !reached_ && !wrong_.ok(); }

  const uint64_t whole_;
  uint64_t trip_ = 0, push_ = 0;  // push_: 0 before the first part
  int64_t under_way_ = 0;
  bool reached_ = false;  // a part was applied, or may have been
  Status wrong_;          // the first that went wrong
  Call<void()> all_ended_;
};

}  // namespace cairn::client

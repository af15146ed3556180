// Calls that have ended, to be told when the core has finished its own work: a caller's `done` may
// submit the next request, and must not find the core half changed.
#pragma once

#include <utility>

#include "base/call.h"
#include "base/recycled.h"

namespace cairn::client {

class Completions {
 public:
  void Add(Call<void()> call) { waiting_.push_back(std::move(call)); }
  // Tells all of them, also those that come meanwhile. Calls from inside one return at once.
  void Run() {
    if (running_) return;
    running_ = true;
    while (!waiting_.empty()) {
      Call<void()> call = std::move(waiting_.front());
      waiting_.pop_front();
      call();
    }
    running_ = false;
  }

 private:
  RecycledDeque<Call<void()>> waiting_;
  bool running_ = false;
};

}  // namespace cairn::client

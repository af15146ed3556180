// The client's start: a call that ends when the worker is in a view and connected to every shard thread, or
// at its deadline; meanwhile it says who is missing. The core's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "cairn/status.h"
#include "client/protocol/client_core.h"
#include "client/protocol/completions.h"
#include "client/protocol/waiting_words.h"

namespace cairn::client {

class StartCall {
 public:
  StartCall(const LogLine& log, const WaitingWords& words, Completions& completions)
      : log_(log), words_(words), completions_(completions) {}

  bool under_way() const { return call_.has_value(); }
  // Requires that none is under way.
  void Begin(int64_t deadline_us, ClientCore::Done done, int64_t now_us);
  // Ends it if it has an end now.
  void Settle(bool in_view, bool connected, int64_t now_us);
  void End(const Status& how);

 private:
  static constexpr int64_t kLogUs = 3'000'000;  // how often it says who is missing
  struct Call {
    int64_t deadline_us = 0;
    int64_t log_us = 0;
    ClientCore::Done done;
  };

  const LogLine& log_;
  const WaitingWords& words_;
  Completions& completions_;
  std::optional<Call> call_;
};

}  // namespace cairn::client

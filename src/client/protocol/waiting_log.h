// Says every so often what this worker has been waiting for, and whom for: one line for the oldest request
// or call that has taken long. The core's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/log.h"
#include "client/protocol/control_calls.h"
#include "client/protocol/request_table.h"
#include "client/protocol/waiting_words.h"

namespace cairn::client {

class WaitingLog {
 public:
  WaitingLog(const LogLine& log, int64_t every_us, const RequestTable& requests, const ControlCalls& calls,
             const WaitingWords& words, int64_t now_us)
      : log_(log),
        every_us_(every_us),
        requests_(requests),
        calls_(calls),
        words_(words),
        log_us_(now_us + every_us) {}

  void OnTick(int64_t now_us);

 private:
  const LogLine& log_;
  const int64_t every_us_;
  const RequestTable& requests_;
  const ControlCalls& calls_;
  const WaitingWords& words_;
  int64_t log_us_;  // when to say it again
};

}  // namespace cairn::client

// Waits that nothing ends: as long as the program only waits, and all of its calls wait for other workers,
// the scheduler is told whom for (docs/internals/consistency.md, rule 54); it says if they wait for this
// one too. The core's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "client/links/scheduler_link.h"
#include "client/protocol/client_core.h"
#include "client/protocol/control_calls.h"
#include "client/protocol/push_bound.h"
#include "client/protocol/request_table.h"
#include "client/protocol/waiting_words.h"
#include "wire/control.h"

namespace cairn::client {

class BlockedWaits {
 public:
  BlockedWaits(const ClientCoreOptions& options, SchedulerLink& scheduler, const ControlCalls& calls,
               const RequestTable& requests, const PushBound& bound, const WaitingWords& words)
      : options_(options),
        scheduler_(scheduler),
        calls_(calls),
        requests_(requests),
        bound_(bound),
        words_(words) {}

  // Tells the scheduler, every so often. Not while the client starts, nor after its end.
  void OnTick(bool runs, int64_t now_us);
  // Whether the scheduler speaks of what this worker waits for now.
  bool IsAbout(const wire::Deadlock& message, int64_t now_us) const;

 private:
  // What all calls wait for, if it is other workers.
  std::optional<wire::Blocked> Now(int64_t now_us) const;

  const ClientCoreOptions& options_;
  SchedulerLink& scheduler_;
  const ControlCalls& calls_;
  const RequestTable& requests_;
  const PushBound& bound_;
  const WaitingWords& words_;
  int64_t report_us_ = 0;  // when to tell it again
};

}  // namespace cairn::client

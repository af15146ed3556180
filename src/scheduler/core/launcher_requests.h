// What whoever started the processes says about ranks, processes and the job: `cairn run`, a batch system's
// scripts, users. One thread.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/detection.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/registration.h"

namespace cairn::scheduler {

class LauncherRequests {
 public:
  LauncherRequests(Journal& journal, Connections& connections, Presence& presence, Detection& detection,
                   const Registration& registration, const LogLine& log)
      : journal_(journal),
        connections_(connections),
        presence_(presence),
        detection_(detection),
        registration_(registration),
        log_(log) {}

  // All three: true where it is done, and the caller may be told the status.
  bool OnGiveUp(ConnId conn, const wire::GiveUp& give_up);
  // What the process held is not awaited any longer.
  bool OnProcessEnded(const wire::ProcessEnded& ended, int64_t now_us);
  bool OnAbort(const wire::AbortJob& abort);

 private:
  Journal& journal_;
  Connections& connections_;
  Presence& presence_;
  Detection& detection_;
  const Registration& registration_;
  const LogLine& log_;
};

}  // namespace cairn::scheduler

// Workers that wait for each other for ever are told so: deadlock_watch.h finds them, from what they report
// and from the barriers that they have entered. One thread.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "scheduler/core/barriers.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/deadlock_watch.h"
#include "scheduler/core/journal.h"

namespace cairn::scheduler {

class Deadlocks {
 public:
  // after_us: 0: never.
  Deadlocks(int64_t after_us, int64_t heartbeat_us, const Journal& journal, const Barriers& barriers,
            Connections& connections, const LogLine& log);

  void OnBlocked(ConnId conn, const wire::Blocked& report, int64_t now_us);
  void OnTick(int64_t now_us);

 private:
  const int64_t heartbeat_us_;
  const Journal& journal_;
  const Barriers& barriers_;
  Connections& connections_;
  const LogLine& log_;
  DeadlockWatch watch_;
  int64_t looked_us_ = INT64_MIN / 2;
};

}  // namespace cairn::scheduler

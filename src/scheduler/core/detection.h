// What time does to nodes: deaths, the grace for dead ranks, and pauses of this process, which say nothing
// about anybody. Time only makes the scheduler suspect; the death itself is a record. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/failover.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/presence.h"

namespace cairn::scheduler {

class Detection {
 public:
  struct Options {
    int64_t dead_after_us = 5'000'000;
    int64_t lost_after_us = 60'000'000;
    int64_t rejoin_grace_us = 30'000'000;
  };
  Detection(const Options& options, int64_t now_us, Journal& journal, Connections& connections,
            Presence& presence, Failover& failover, const LogLine& log)
      : options_(options),
        journal_(journal),
        connections_(connections),
        presence_(presence),
        failover_(failover),
        log_(log),
        last_tick_us_(now_us) {}

  // First at each tick: whether this process could hear anybody since the last one.
  void NoticePauses(int64_t now_us);
  void OnWaited(int64_t waited_us);
  void DetectDeaths(int64_t now_us);
  // Ranks that nobody has restarted, once all others are gone.
  void GiveUpAfterGrace(int64_t now_us);
  // After every event: whether anybody works.
  void NoteWorkers(int64_t now_us);
  bool cut_off() const { return cut_off_; }

 private:
  void NoticePause(int64_t now_us);
  void LookForIsolation(int64_t now_us, int64_t since_last_us);
  void RemoveWorkers(const std::vector<wire::WorkerInfo>& dead);

  const Options options_;
  Journal& journal_;
  Connections& connections_;
  Presence& presence_;
  Failover& failover_;
  const LogLine& log_;
  int64_t last_tick_us_;
  int64_t no_workers_since_us_ = -1;  // running, and nobody is live
  bool cut_off_ = false;
};

}  // namespace cairn::scheduler

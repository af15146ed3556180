// When slots are placed, and with what knowledge: the sizes and the traffic that primaries report, the
// servers that had better not get copies now. placement/ decides what is begun. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/log.h"
#include "scheduler/core/barriers.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/load_reports.h"
#include "scheduler/core/owner_news.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/slot_sizes.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/traffic_watch.h"

namespace cairn::scheduler {

class Placer {
 public:
  struct Placed {
    PlacementChange change;
    TrafficSpread traffic;  // before slots were moved for it
  };

  Placer(const TrafficOptions& traffic, const Journal& journal, const Presence& presence,
         const Barriers& barriers, const LoadReports& loads, const OwnerNews& news, const LogLine& log)
      : journal_(journal),
        presence_(presence),
        barriers_(barriers),
        loads_(loads),
        news_(news),
        log_(log),
        traffic_(traffic) {}

  void Forget(Incarnation server) { told_full_.erase(server); }
  // From the primary of these slots (server: index). Requires a running job.
  void TakeLoads(uint32_t server, const std::vector<wire::SlotLoad>& loads, int64_t now_us);
  // At each tick: whether slots should move for their work.
  void LookAtTraffic(int64_t now_us);

  // Slots begin to move in waves, so far apart: a push that waits for one wave is through before the next.
  bool Due(int64_t now_us, int64_t gap_us) const { return now_us - placing_us_ >= gap_us; }
  // Something may be placed, in a running job.
  bool WorkWaits(int64_t now_us) const;
  void NoteWave(int64_t now_us) { placing_us_ = now_us; }
  // Begins what is possible now.
  Placed Place(DurableState& next, int64_t now_us);
  // Nothing more is possible with the state of now.
  void NoteDone() { placed_version_ = journal_.state().version; }
  void NoteCaughtUp(uint32_t copies) { copies_done_ += copies; }

  uint32_t copies_done() const { return copies_done_; }  // in this wave of moves
  uint32_t CopiesLeft(int64_t now_us) const;
  const SlotSizes& sizes() const { return sizes_; }
  const TrafficWatch& traffic() const { return traffic_; }

 private:
  PlacementLimits Limits(int64_t now_us) const;
  void AvoidThoseWithoutMemory(const SlotBytes& bytes, PlacementLimits* limits);

  const Journal& journal_;
  const Presence& presence_;
  const Barriers& barriers_;
  const LoadReports& loads_;
  const OwnerNews& news_;
  const LogLine& log_;
  SlotSizes sizes_;
  TrafficWatch traffic_;
  bool traffic_due_ = false;
  int64_t traffic_looked_us_ = INT64_MIN / 2;
  bool avoided_ = false;         // the last one has left servers out that may be back soon
  StateVersion placed_version_;  // the state after the last placement
  int64_t placed_us_ = 0;
  int64_t placing_us_ = INT64_MIN / 2;  // when slots last began to move, or could have
  uint32_t copies_done_ = 0;
  std::set<Incarnation> told_full_;  // have been logged as having no memory for copies
};

}  // namespace cairn::scheduler

// How much work each slot means, from what primaries report, and when it is time to move slots for it
// (rule 53): some shard thread has had clearly more than the mean for a while. The core (placer.h) tells
// it what comes in and asks it; traffic_exchange.h plans. Nothing of this outlives a restart.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/placement/traffic.h"
#include "wire/control.h"

namespace cairn::scheduler {

class TrafficWatch {
 public:
  explicit TrafficWatch(const TrafficOptions& options) : options_(options) {}

  // From the slot's primary; counts only grow while it is the same server.
  void Take(const wire::SlotLoad& load, uint32_t server, int64_t now_us);
  // Asked every second or so: whether slots should be moved now. `quiet`: nothing is under way.
  bool Due(const wire::ClusterState& state, bool quiet, int64_t now_us);
  // What has been done about it.
  void Moved(const std::vector<uint32_t>& slots, int64_t now_us);

  SlotTraffic Rates(int64_t now_us) const;
  TrafficSpread spread(const wire::ClusterState& state) const;
  uint64_t moved() const { return moved_; }  // slots, since the start

 private:
  struct Rate {
    double pushed = 0, pulled = 0;
    void Move(double pushed_now, double pulled_now, double part);
  };
  struct Slot {
    uint32_t server = UINT32_MAX;
    uint64_t pushed = 0, pulled = 0;  // as last taken
    int64_t taken_us = 0;
    Rate slow, fast;
    int64_t rests_until_us = INT64_MIN;
  };
  SlotTraffic All(Rate Slot::* rate) const;
  bool Hot(const wire::ClusterState& state) const;

  const TrafficOptions options_;
  std::vector<Slot> slots_;
  int64_t hot_since_us_ = -1;
  int64_t next_us_ = INT64_MIN / 2;
  uint64_t moved_ = 0;
};

}  // namespace cairn::scheduler

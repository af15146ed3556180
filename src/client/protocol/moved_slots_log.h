// The log lines about slots that have other owners: one for a server that is gone, and one every so often
// for many slots that are handed over one by one. The core's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "base/log.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class MovedSlotsLog {
 public:
  MovedSlotsLog(const LogLine& log, int64_t every_us) : log_(log), every_us_(every_us) {}

  // Both have the same number of slots.
  void OnNewMap(const wire::ClusterState& before, const wire::ClusterState& now, int64_t now_us);
  void OnTick(int64_t now_us);

 private:
  const LogLine& log_;
  const int64_t every_us_;
  uint64_t moved_ = 0;  // handed over, and not yet logged
  std::set<uint32_t> moved_to_;
  int64_t log_us_ = 0;
};

}  // namespace cairn::client

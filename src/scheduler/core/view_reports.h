// What servers report for a view that is being made (rules 3 and 6): that they hold for it, and the first
// rounds that a newcomer could take part in. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::scheduler {

class ViewReports {
 public:
  // True: the heartbeat has a newer report.
  bool Take(Incarnation server, const wire::Heartbeat& heartbeat);
  void Forget(Incarnation server) { reports_.erase(server); }

  // The servers (indexes) that have not reported for the pending view. Requires one.
  std::vector<uint32_t> NotHolding(const wire::ClusterState& state) const;
  // All reports, for FinishView. Requires that nobody is missing.
  std::vector<wire::TableRound> OpenRounds(const wire::ClusterState& state) const;

  uint64_t changes() const { return changes_; }

 private:
  struct Report {
    ViewNumber hold_view;
    StateVersion hold_version;
    std::vector<wire::TableRound> open_rounds;
  };
  std::map<Incarnation, Report> reports_;
  uint64_t changes_ = 0;
};

}  // namespace cairn::scheduler

// What the shards of a server report, merged into what a heartbeat says. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "server/control/server_control.h"
#include "server/slots/hot_report.h"
#include "wire/control.h"

namespace cairn::server {

class ServerReports {
 public:
  // Every shard's newest report. True if the scheduler is to hear of it at once.
  bool Take(const std::vector<ShardReport>& reports);

  StateVersion version() const { return merged_.version; }  // that every shard has
  // Into a heartbeat: what is small, whatever the cluster; and the rest, of the slots' loads as many as fit,
  // in turn.
  void FillBrief(wire::Heartbeat& heartbeat) const;
  void Fill(wire::Heartbeat& heartbeat);
  // Memory that the shards hold and no table has.
  uint64_t reusable_bytes() const { return merged_.reusable_bytes; }

 private:
  struct Merged {
    StateVersion version;                       // held by every shard
    ViewNumber hold_view;                       // 0 unless every shard holds for the same view
    std::vector<wire::TableRound> hold_rounds;  // by table; the highest of any shard
    wire::NodeStats stats;
    std::vector<wire::SlotNews> news;
    std::vector<wire::SlotLoad> loads;
    HotReport hot;
    uint64_t reusable_bytes = 0;
    std::vector<wire::StalledRound> stalled;
  };
  static Merged Merge(const std::vector<ShardReport>& reports);

  Merged merged_;
  size_t next_load_ = 0;  // of its loads, to be reported next
};

}  // namespace cairn::server

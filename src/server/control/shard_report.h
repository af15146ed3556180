// What a shard thread tells its server's control thread, and when: both drivers of a shard, the node and
// the simulator, go by this. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "server/shard/shard.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::server {

// What one shard thread last said; the driver keeps one per thread and hands all of them over.
struct ShardReport {
  StateVersion version;
  ViewNumber hold_view;
  std::vector<wire::TableRound> hold_rounds;
  wire::NodeStats stats;
  std::vector<wire::SlotNews> news;
  std::vector<wire::SlotLoad> loads;
  Shard::HotReport hot;
  uint64_t reusable_bytes = 0;  // Shard::reusable_bytes
  std::vector<wire::StalledRound> stalled;
  std::shared_ptr<const wire::ClusterState> passed_state;  // Shard::passed_state
};

ShardReport ReportOf(const Shard& shard);

// A report says something of every slot. Of few slots it is made with every piece of news; of many not more
// often than the gap allows, nor less often than the tick. One thread.
class ReportTimer {
 public:
  // After every message. `news`: Shard::TakeNewsFlag. True: report now.
  bool AfterMessage(bool news, int64_t now_us) {
    has_news_ |= news;
    return has_news_ && now_us - last_us_ >= gap_us_;
  }
  bool OnTick(bool news, int64_t now_us) {
    has_news_ |= news;
    return has_news_ || now_us - last_us_ >= kEveryUs;
  }
  // A report was made, as it is after every state, too.
  void Reported(const ShardReport& report, int64_t now_us) {
    last_us_ = now_us;
    has_news_ = false;
    const size_t slots = report.loads.size();
    gap_us_ = slots > kFewSlots ? static_cast<int64_t>(slots) * kGapUsASlot : 0;
  }

 private:
  static constexpr int64_t kEveryUs = 1'000'000;
  static constexpr size_t kFewSlots = 4096;
  static constexpr int64_t kGapUsASlot = 2;

  int64_t last_us_ = 0, gap_us_ = 0;
  bool has_news_ = false;  // that no report has said yet
};

}  // namespace cairn::server

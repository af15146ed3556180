#include "server/control/shard_report.h"

namespace cairn::server {

ShardReport ReportOf(const Shard& shard) {
  return {.version = shard.version(),
          .hold_view = shard.hold_view(),
          .hold_rounds = shard.hold_rounds(),
          .stats = shard.stats(),
          .news = shard.news(),
          .loads = shard.loads(),
          .hot = shard.hot_rows(),
          .reusable_bytes = shard.reusable_bytes(),
          .stalled = shard.stalled(),
          .passed_state = shard.passed_state()};
}

}  // namespace cairn::server

// The client follows the slot map (docs/internals/consistency.md, rule 48): every unanswered frame goes to
// the link of its slots' owner, in one piece or in several, and requests that were made under an older map
// are made to fit before they are sent. The core's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/links/slot_book.h"
#include "client/protocol/moved_slots_log.h"
#include "client/protocol/request_table.h"
#include "client/protocol/round_coverage.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class Rerouting {
 public:
  Rerouting(const SchedulerLink& scheduler, RequestTable& requests, Links& links, SlotBook& book,
            RoundCoverage& coverage, MovedSlotsLog& log, BufferPool& pool)
      : scheduler_(scheduler),
        requests_(requests),
        links_(links),
        book_(book),
        coverage_(coverage),
        log_(log),
        pool_(pool) {}

  // The scheduler link has a newer state of a running job.
  void FollowMap(int64_t now_us);
  // Whether a request that was made under this version has to be made to fit before it is sent.
  bool IsOlderMap(StateVersion made) const { return made < map_version_; }
  // Nothing of the request has been sent.
  void FitToMap(RequestRecord& record) const;
  // Of the newest state with another map than the one before; 0: none has come.
  StateVersion map_version() const { return map_version_; }
  // How often frames were moved.
  uint64_t reroutes() const { return reroutes_; }

 private:
  void Reroute(std::vector<std::unique_ptr<ShardLink>>& gone, int64_t now_us);
  void MoveFrame(ShardLink::Moving moving);

  const SchedulerLink& scheduler_;
  RequestTable& requests_;
  Links& links_;
  SlotBook& book_;
  RoundCoverage& coverage_;
  MovedSlotsLog& log_;
  BufferPool& pool_;
  std::shared_ptr<const wire::ClusterState> mapped_;  // the last state with another map
  StateVersion map_version_;                          // its version
  uint64_t reroutes_ = 0;
};

}  // namespace cairn::client

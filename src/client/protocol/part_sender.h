// Gives a part of a request its place: its frame's id, the next number of every slot that it pushes to, its
// trip, its seal; and queues it on the link to its shard thread. The core's thread.
#pragma once

#include <cstdint>

#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/links/slot_book.h"
#include "client/protocol/request_table.h"

namespace cairn::client {

class PartSender {
 public:
  // Between the ids of two frames lie those of the pieces that the first is cut into (rerouting.h).
  static constexpr uint64_t kFrameIdStep = uint64_t{1} << 20;

  PartSender(const SchedulerLink& scheduler, Links& links, SlotBook& book)
      : scheduler_(scheduler), links_(links), book_(book) {}

  // The next part of the request: parts are sent in order, each once. `fitted`: the request is not as it
  // was submitted, but made to fit a newer slot map.
  void Send(uint64_t id, RequestRecord& record, uint32_t part, bool fitted, int64_t now_us);

  // What is sent of this request belongs to its caller's trip, if it has one; 0: of none. What was held
  // back leaves by itself, later than the rest of its trip.
  void SetSubmitting(uint64_t id) { submitting_ = id; }

 private:
  bool BeginsTrip(uint64_t id, uint64_t trip, ShardLink& link) const;

  const SchedulerLink& scheduler_;
  Links& links_;
  SlotBook& book_;
  uint64_t next_frame_ = 1;
  uint64_t submitting_ = 0;  // the request whose Submit runs
};

}  // namespace cairn::client

// Values that a shard thread answers with: whether they are what was asked for and not older than what has
// been read already, and into the caller's memory with them. The core's thread.
#pragma once

#include "client/links/scheduler_link.h"
#include "client/links/shard_link.h"
#include "client/links/slot_book.h"
#include "client/protocol/client_core.h"
#include "client/protocol/request_table.h"
#include "wire/data.h"

namespace cairn::client {

class PulledValues {
 public:
  // `observer` may be null.
  PulledValues(SlotBook& book, const SchedulerLink& scheduler, ClientObserver* observer)
      : book_(book), scheduler_(scheduler), observer_(observer) {}

  // The answer to this frame of the request.
  ShardLink::Verdict Take(const RequestRecord& record, const Outgoing& frame, const wire::ValuesView& values);

 private:
  ShardLink::Verdict CheckPositions(const RequestRecord& record, const ShardPart& part,
                                    const wire::ValuesView& values);

  SlotBook& book_;
  const SchedulerLink& scheduler_;
  ClientObserver* const observer_;
};

}  // namespace cairn::client

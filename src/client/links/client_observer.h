// What the simulator's checkers are told by a client. Called synchronously; must not call back.
#pragma once

#include <cstddef>

#include "base/ids.h"
#include "cairn/status.h"

namespace cairn::client {

class ClientObserver {
 public:
  virtual ~ClientObserver() = default;
  // The core has taken a slot's part of a numbered push as acknowledged (applied).
  virtual void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) = 0;
  // The core has taken a round as closed on every shard thread.
  virtual void OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                                   const Status& outcome) = 0;
  // This worker's clock in a bounded table begins there, not at 0: it has joined later.
  virtual void OnClockBegins(Incarnation, TableId, Round /*start*/) {}
  // The core has accepted the answer to a pull (part): a slot's position. `to` is where a value of that
  // answer goes, in the caller's memory; null: nowhere.
  virtual void OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position,
                      const std::byte* to) = 0;
};

}  // namespace cairn::client

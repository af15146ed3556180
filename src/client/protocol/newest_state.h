// How this worker comes by the newest state of the cluster when the scheduler does not tell it by itself:
// it asks for one that a shard has already, and compares states with the shards while the scheduler is
// silent (a scheduler that ended in the middle of telling has told somebody: workers carry it to
// everybody). The core's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "client/links/links.h"
#include "client/links/scheduler_link.h"
#include "client/links/slot_book.h"
#include "wire/control.h"

namespace cairn::client {

class NewestState {
 public:
  NewestState(SchedulerLink& scheduler, Links& links, const SlotBook& book)
      : scheduler_(scheduler), links_(links), book_(book) {}

  // A shard has, or an answer was made under, this version: asks for it if it is newer than ours.
  void Want(StateVersion version, int64_t now_us);
  // Asks again, when that is due.
  void Ask(int64_t now_us);
  void Compare(int64_t now_us);
  // What a shard says of the state that it has: answers a StateAt, keeps a state that it passes on.
  void OnStateOf(ShardLink& link, wire::ControlMessage& message);
  // The state that was passed on by the last event, once: a new state may end the link that it came by.
  std::optional<wire::StateMessage> TakePassed();

 private:
  static constexpr int64_t kAskEveryUs = 50'000;

  SchedulerLink& scheduler_;
  Links& links_;
  const SlotBook& book_;
  StateVersion wanted_;  // the newest that a shard has said it has
  int64_t ask_us_ = 0;   // when to ask the scheduler for it again
  int64_t compare_us_ = 0;
  std::optional<wire::StateMessage> passed_;
};

}  // namespace cairn::client

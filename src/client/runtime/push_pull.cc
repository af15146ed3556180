// An async push-pull: a push and, behind it on the same connections, a pull; one round trip.
#include <string>
#include <utility>

#include "client/runtime/client_impl.h"

namespace cairn {
using client::PartitionInput;
using client::Request;
using transport::Loop;

// The pull's answer counts only if the push had ended before it and no connection was rewound
// meanwhile: otherwise the pull may have overtaken the push, and is repeated once the push has
// ended.
struct ClientImpl::PushPullCall {
  const std::shared_ptr<const TableHandle> table;
  TableCall call;
  std::shared_ptr<Pending::State> state;
  int64_t deadline_us = 0;
  uint64_t reserved = 0;
  Request push, pull;
  uint64_t rewinds = 0;  // of the core, when both were submitted
  bool push_ended = false;
  Status push_status;
  bool pull_running = false;
  bool pull_after_push = false;  // the pull was submitted when the push had ended
  bool pull_counts = false;
  Status pull_status;
};

Pending ClientImpl::AsyncPushPull(const std::shared_ptr<const TableHandle>& handle,
                                  const TableCall& call) {
  const TableHandle& table = *handle;
  auto both = MakeRecycled<PushPullCall>(PushPullCall{handle, call});
  both->deadline_us = DeadlineUs(call.options.timeout_ms);
  both->reserved = call.bytes();
  const auto state = Snapshot();
  if (Status wrong = CheckCall(table, call, *state); !wrong.ok()) return Ready(wrong);
  PartitionInput input = InputOf(table, call, *state);
  input.borrow = true;  // the caller waits for the pull anyway
  both->call.options.mask = {};  // the caller's, and only for the push
  auto pull = PreparePull(input, pool_);  // a wrong `out` is found before anything is sent
  if (!pull.ok()) return Ready(pull.status());
  if (Status full = Reserve(table, both->reserved, both->deadline_us); !full.ok()) return Ready(full);
  PartitionInput gradient = input;
  client::ErrorFeedback::Chosen chosen = Choose(table, gradient);
  auto push = PreparePush(gradient, pool_);
  if (!push.ok()) {
    unacked_.Free(both->reserved);
    return Ready(push.status());
  }
  both->push = std::move(*push);
  both->pull = std::move(*pull);
  both->state = MakeRecycled<Pending::State>(false);
  const Status posted = Begin([this, both] { StartBoth(both); }, *both->state, Then::kWaits);
  if (!posted.ok()) {
    unacked_.Free(both->reserved);
    return Ready(posted);
  }
  chosen.KeepRest();
  return Pending(both->state);
}

void ClientImpl::StartBoth(const std::shared_ptr<PushPullCall>& both) {
  ++calls_;
  both->rewinds = core_->rewinds();
  const bool held_back = !core_->has_room();  // such a push would be overtaken
  both->push.trip = both->pull.trip = trip_;
  both->push.deadline_us = both->deadline_us;
  both->push.done = [this, both, frames = BorrowingFrames(both->push)](Status status) {
    Disown(frames);
    both->push_ended = true;
    both->push_status = std::move(status);
    unacked_.Free(both->reserved);
    GoOn(both);
  };
  if (held_back) {
    core_->Submit(std::move(both->push), Loop::NowUs());
  } else {
    ExpectPull(both, both->pull);
    core_->SubmitInTurns(std::move(both->push), std::move(both->pull), Loop::NowUs());
  }
  Publish();
}

void ClientImpl::StartPull(const std::shared_ptr<PushPullCall>& both, Request pull) {
  ExpectPull(both, pull);
  core_->Submit(std::move(pull), Loop::NowUs());
}

void ClientImpl::ExpectPull(const std::shared_ptr<PushPullCall>& both, Request& pull) {
  both->pull_running = true;
  both->pull_after_push = both->push_ended;
  pull.deadline_us = both->deadline_us;
  pull.done = [this, both](Status status) {
    both->pull_running = false;
    both->pull_status = std::move(status);
    both->pull_counts = both->pull_after_push || (both->push_ended && core_->rewinds() == both->rewinds);
    GoOn(both);
  };
}

// After the end of either. Nothing is completed while a pull may still write to the caller's array.
void ClientImpl::GoOn(const std::shared_ptr<PushPullCall>& both) {
  if (both->pull_running || !both->push_ended) return;
  if (both->push_status.ok() && both->pull_status.ok() && !both->pull_counts) {
    auto pull = PreparePull(InputOf(*both->table, both->call, *core_->state()), pool_);
    if (pull.ok()) return StartPull(both, std::move(*pull));
    both->pull_status = pull.status();
  }
  --calls_;
  Publish();
  both->state->Complete(both->push_status.ok() ? both->pull_status : both->push_status);
}

}  // namespace cairn

#include "client/runtime/push_pull_call.h"

#include <utility>

#include "client/partition/partition.h"

namespace cairn {

PushPullCall::PushPullCall(LoopSide& loop, client::UnackedBytes& unacked,
                           std::shared_ptr<const TableHandle> table, const TableCall& call,
                           std::shared_ptr<PendingState> state, Prepared prepared)
    : loop_(loop),
      unacked_(unacked),
      table_(std::move(table)),
      call_(call),
      state_(std::move(state)),
      prepared_(std::move(prepared)),
      frames_(client::BorrowingFrames(prepared_.push)),
      both_(loop.core(), *this) {
  call_.mask = {};  // the caller's, and only for the push
}

void PushPullCall::Start(uint64_t trip, const std::shared_ptr<PushPullCall>& self) {
  loop_.CallBegun();
  both_.Start(std::move(prepared_.push), std::move(prepared_.pull), trip, prepared_.deadline_us, self);
  loop_.Publish();
}

Result<client::Request> PushPullCall::PreparePull() {
  const std::shared_ptr<const wire::ClusterState> state = loop_.core().state();
  return client::PreparePull(client::InputOf(*table_, call_, *state), loop_.pool());
}

void PushPullCall::OnPushEnded() {
  loop_.Disown(frames_);
  unacked_.Free(prepared_.reserved);
}

void PushPullCall::OnEnded(const Status& outcome) {
  loop_.CallEnded();
  state_->Complete(outcome);
}

}  // namespace cairn

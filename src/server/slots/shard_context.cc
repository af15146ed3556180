#include "server/slots/shard_context.h"

#include <utility>

#include "base/check.h"

namespace cairn::server {
namespace {
constexpr int64_t kOwnPauseUs = 1'000'000;  // ticks come every 100 ms
}  // namespace

Status ShardContext::EndOfJob() const {
  if (state_->phase != wire::Phase::kEnded && state_->phase != wire::Phase::kFailed) return Status::Ok();
  return {Code::kJobFailed, state_->failure.empty() ? "the job has ended" : state_->failure};
}

void ShardContext::Register(uint32_t server_index, Incarnation incarnation) {
  CAIRN_CHECK(!registered_);  // a server that starts again is another shard
  registered_ = true;
  server_index_ = server_index;
  incarnation_ = incarnation;
}

ShardContext::StatePtr ShardContext::TakeState(StatePtr state) {
  CAIRN_CHECK(state != nullptr && (state_ == nullptr || state->version > state_->version));
  return std::exchange(state_, std::move(state));
}

ShardContext::StatePtr ShardContext::ForgetState() { return std::exchange(state_, nullptr); }

// If this thread did not run, it could not hear confirmations either: nobody else was slow.
void ShardContext::NoteTime(int64_t now_us) {
  if (now_us - now_us_ > kOwnPauseUs) awake_us_ = now_us;
  now_us_ = now_us;
}

}  // namespace cairn::server

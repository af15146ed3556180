#include "client/protocol/start_call.h"

#include <utility>

#include "base/check.h"

namespace cairn::client {

void StartCall::Begin(int64_t deadline_us, ClientCore::Done done, int64_t now_us) {
  CAIRN_CHECK(!call_);
  call_ = Call{deadline_us, now_us + kLogUs, std::move(done)};
}

void StartCall::Settle(bool in_view, bool connected, int64_t now_us) {
  if (!call_) return;
  Status result;
  if (!in_view || !connected) {
    if (now_us >= call_->log_us) {
      call_->log_us = now_us + kLogUs;
      log_(words_.StartAwaits(in_view, now_us));
    }
    if (now_us < call_->deadline_us) return;
    result = {Code::kDeadlineExceeded,
              "the client could not start in time: " + words_.StartAwaits(in_view, now_us)};
  }
  End(result);
}

void StartCall::End(const Status& how) {
  if (!call_) return;
  completions_.Add([done = std::move(call_->done), how] { done(how); });
  call_.reset();
}

}  // namespace cairn::client

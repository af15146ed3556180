#include "client/protocol/push_pull.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::client {

void PushPull::Start(Request push, Request pull, uint64_t trip, int64_t deadline_us,
                     const std::shared_ptr<void>& alive) {
  CAIRN_CHECK(!push_ended_ && !pull_running_);
  deadline_us_ = deadline_us;
  rewinds_ = core_.rewinds();
  const bool held_back = !core_.has_room();  // such a push would be overtaken
  push.trip = pull.trip = trip;
  push.deadline_us = deadline_us;
  push.done = [this, alive](Status status) {
    CAIRN_CHECK(!push_ended_);
    push_ended_ = true;
    push_status_ = std::move(status);
    driver_.OnPushEnded();
    GoOn(alive);
  };
  const int64_t now_us = driver_.NowUs();
  if (held_back) {
    core_.Submit(std::move(push), now_us);
  } else {
    ExpectPull(pull, alive);
    core_.SubmitInTurns(std::move(push), std::move(pull), now_us);
  }
}

void PushPull::ExpectPull(Request& pull, const std::shared_ptr<void>& alive) {
  CAIRN_CHECK(!pull_running_);
  pull_running_ = true;
  pull_after_push_ = push_ended_;
  pull.deadline_us = deadline_us_;
  pull.done = [this, alive](Status status) {
    pull_running_ = false;
    pull_status_ = std::move(status);
    pull_counts_ =
        pull_after_push_ || (push_ended_ && core_.rewinds() == rewinds_) || CAIRN_BUG(kPullOvertakes);
    GoOn(alive);
  };
}

// After the end of either. Nothing is completed while a pull may still write to the caller's array.
void PushPull::GoOn(const std::shared_ptr<void>& alive) {
  if (pull_running_ || !push_ended_) return;
  if (push_status_.ok() && pull_status_.ok() && !pull_counts_) {
    Result<Request> pull = driver_.PreparePull();
    if (pull.ok()) {
      ExpectPull(*pull, alive);
      return core_.Submit(std::move(*pull), driver_.NowUs());
    }
    pull_status_ = pull.status();
  }
  driver_.OnEnded(push_status_.ok() ? pull_status_ : push_status_);
}

}  // namespace cairn::client

#include "cluster/supervise/scheduler_silence.h"

#include <string>

namespace cairn::cluster {
namespace {

std::optional<Failure> SilentFor(int64_t ms, const std::string& consequence) {
  return Failure{.cause = "node 0's scheduler has not answered for " + std::to_string(ms / 1000) + " s",
                 .consequence = consequence};
}

}  // namespace

void SchedulerSilence::OnPatience(int64_t lost_after_ms) {
  // Once it can be reached again, it takes a moment until it has answered.
  constexpr int64_t kAnswerMs = 5'000;
  if (lost_after_ms > 0) lost_grace_ms_ = lost_after_ms + kAnswerMs;
}

std::optional<Failure> SchedulerSilence::WhileStarting(int64_t now_ms) const {
  if (now_ms < heard_ms_ + join_grace_ms_) return std::nullopt;
  return SilentFor(join_grace_ms_,
                   ": is it started, and does it have the same --master-addr and --master-port?");
}

std::optional<Failure> SchedulerSilence::WhileNeeded(int64_t now_ms) const {
  if (now_ms < heard_ms_ + lost_grace_ms_) return std::nullopt;
  return SilentFor(lost_grace_ms_, ": the job ends here");
}

}  // namespace cairn::cluster

// On every machine but the first: how long node 0's scheduler may be silent, before the job has begun and
// while it runs. No clock.
#pragma once

#include <cstdint>
#include <optional>

#include "cluster/supervise/job_verdict.h"
#include "cluster/supervise/supervise_options.h"

namespace cairn::cluster {

class SchedulerSilence {
 public:
  explicit SchedulerSilence(const SuperviseOptions& options)
      : join_grace_ms_(options.join_grace_ms), lost_grace_ms_(options.lost_grace_ms) {}

  void OnHeard(int64_t now_ms) { heard_ms_ = now_ms; }
  // The scheduler's own word on how long it may be cut off; 0: not said.
  void OnPatience(int64_t lost_after_ms);
  // Before it has ever answered.
  std::optional<Failure> WhileStarting(int64_t now_ms) const;
  // While there are servers that need it.
  std::optional<Failure> WhileNeeded(int64_t now_ms) const;

 private:
  const int64_t join_grace_ms_;
  int64_t lost_grace_ms_;
  int64_t heard_ms_ = 0;
};

}  // namespace cairn::cluster

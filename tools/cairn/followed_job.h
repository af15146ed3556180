// A job that a command waits for: its scheduler is asked again and again, and the job's end ends the wait. A
// scheduler that does not answer may have been killed and be on its way back, or be gone with its job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "status_poller.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

class FollowedJob {
 public:
  // `choice`: how the user named it (job_choice.h). `scheduler` has answered and has this job.
  FollowedJob(const wire::Endpoint& scheduler, std::optional<std::string> choice, std::string cluster_id);

  struct Look {
    std::optional<ClusterSummary> summary;  // of a job that is not over
    std::string over;                       // why there is nothing to wait for any more; empty: go on
  };
  // Waits for an answer, for a few seconds at most.
  Look Next();
  const wire::Endpoint& scheduler() const { return scheduler_; }

 private:
  std::string WhyGone(const Status& no_answer) const;

  wire::Endpoint scheduler_;
  const std::optional<std::string> choice_;
  const std::string cluster_id_;
  const bool launched_here_;
  int64_t answered_ms_;
};

}  // namespace cairn::tool

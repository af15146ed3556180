// When the progress is shown: redrawn twice a second on a terminal, as a line now and then elsewhere.
#pragma once

#include <cstdint>

#include "job_output.h"
#include "launch_options.h"
#include "progress.h"

namespace cairn::tool {

class ProgressDisplay {
 public:
  // Both must live longer.
  ProgressDisplay(const LaunchOptions& options, JobOutput& output) : options_(options), output_(output) {}

  bool IsDue(int64_t now_ms) const { return options_.progress.value_or(true) && now_ms >= next_ms_; }
  void Show(const ProgressView& view, int64_t now_ms);

 private:
  const LaunchOptions& options_;
  JobOutput& output_;
  int64_t next_ms_ = 0;
};

}  // namespace cairn::tool

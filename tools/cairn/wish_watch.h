// The launcher's side of `cairn stop` and `cairn scale --workers`: looks at the wishes beside the job's file
// now and then, and writes down what has become of them (job_wishes.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/supervise/worker_scale.h"
#include "job_wishes.h"

namespace cairn::tool {

class WishWatch {
 public:
  // The wishes, if it is time to look and there are any. `job_path`: JobFile::path; empty: there is none.
  std::optional<Wishes> Look(const std::string& job_path, int64_t now_ms);
  // Tells what the launcher makes of `workers`.
  void Answer(const std::string& job_path, const cluster::WorkerScale& scale);

 private:
  int64_t next_ms_ = 0;
  Following written_;
};

}  // namespace cairn::tool

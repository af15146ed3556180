// The launcher's last line: how the job has ended.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/supervise/supervise.h"

namespace cairn::tool {

struct JobSummary {
  int64_t elapsed_ms = 0;
  std::string first_to_fail;  // "worker 1 failed first: ValueError: …", if it is not who ended first
  std::string counts;         // JobWatch::CountsText
  std::string log_folder;     // empty: no logs
};
std::string SummaryLine(const cluster::Supervisor& supervisor, const JobSummary& summary);

}  // namespace cairn::tool

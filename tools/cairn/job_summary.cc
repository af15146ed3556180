#include "job_summary.h"

#include "progress.h"

namespace cairn::tool {

std::string SummaryLine(const cluster::Supervisor& supervisor, const JobSummary& summary) {
  const std::string seconds = Seconds(summary.elapsed_ms);
  const std::string logs = summary.log_folder.empty() ? "" : "logs in " + summary.log_folder;
  if (supervisor.exit_code() != 0) {
    const bool workers_fault = !summary.first_to_fail.empty() && !supervisor.verdict().job_failed();
    const std::string cause = workers_fault ? summary.first_to_fail : supervisor.cause();
    return (supervisor.verdict().stopped() ? "stopped after " + seconds + ", by `cairn stop`"
            : cause == "interrupted"       ? "interrupted after " + seconds
                                           : "failed after " + seconds + ": " + cause) +
           (logs.empty() ? "" : "; " + logs);
  }
  const uint32_t not_left = supervisor.workers().not_left();
  return "finished in " + seconds + ": " + Counted(supervisor.workers().done(), "worker") + " done, " +
         (not_left == 0 ? "" : std::to_string(not_left) + " ended without leaving the job, ") +
         Counted(supervisor.restarts(), "restart") + summary.counts + (logs.empty() ? "" : ", " + logs);
}

}  // namespace cairn::tool

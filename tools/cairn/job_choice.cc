#include "job_choice.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include "cluster/environment/environment.h"
#include "job_files.h"
#include "progress.h"
#include "scheduler_call.h"
#include "status_poller.h"

namespace cairn::tool {
namespace {

constexpr int64_t kFindLeaderMs = 5'000;

// A scheduler that was started without a name has made one up.
std::string IdOf(const JobEntry& job) {
  constexpr int64_t kTimeoutMs = 500;
  if (!job.cluster_id.empty()) return job.cluster_id;
  const Result<ClusterSummary> summary = AskSummary(job.scheduler, kTimeoutMs);
  return summary.ok() ? summary->cluster_id : "-";
}

std::string ListOf(const std::vector<JobEntry>& jobs) {
  std::string text;
  for (const JobEntry& job : jobs) {
    const int64_t age_s = std::max<int64_t>(0, time(nullptr) - job.started_unix);
    text += "\n  " + wire::ToString(job.scheduler) + "  " + IdOf(job) + "  since " + ClockTime(age_s * 1000) +
            "  pid " + std::to_string(job.pid) + "  " + job.command;
  }
  return text;
}

Result<wire::Endpoint> OnlyOne(const std::vector<JobEntry>& jobs, const std::string& prefix) {
  if (jobs.size() == 1) return jobs.front().scheduler;
  if (!jobs.empty()) {
    return Status(
        Code::kInvalidArgument,
        std::to_string(jobs.size()) + " jobs" +
            (prefix.empty() ? " run here" : " begin with '" + prefix + "'") +
            "; which one? Give its address or the beginning of its name (newest first):" + ListOf(jobs));
  }
  if (!prefix.empty())
    return Status(Code::kNotFound, "no job that runs here begins with '" + prefix +
                                       "', and it is no HOST:PORT: `cairn status` alone shows what runs");
  return Status(Code::kNotFound,
                "no job runs here. Start one with `cairn run`, or give the address of a scheduler elsewhere: "
                "cairn status 10.0.0.1:9000");
}

}  // namespace

Result<wire::Endpoint> ChooseScheduler(const std::optional<std::string>& given) {
  const cluster::Variables variables = cluster::ProcessVariables();
  if (given) {
    const Result<std::vector<wire::Endpoint>> addresses = cluster::ParseEndpoints("scheduler", *given);
    if (addresses.ok()) return FindLeader(*addresses, kFindLeaderMs);
    std::vector<JobEntry> jobs = RunningJobs(variables);
    std::erase_if(jobs, [&](const JobEntry& job) { return !IdOf(job).starts_with(*given); });
    // What has a colon was meant as an address, unless a job is called so.
    if (jobs.empty() && given->find(':') != std::string::npos) return addresses.status();
    return OnlyOne(jobs, *given);
  }
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(variables);
  if (!environment.ok()) return environment.status();
  if (cluster::RequireScheduler(*environment).ok())
    return FindLeader(environment->schedulers(), kFindLeaderMs);
  return OnlyOne(RunningJobs(variables), "");
}

}  // namespace cairn::tool

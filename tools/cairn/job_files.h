// The jobs that run on this machine for this user: a small file each, which `cairn status` finds.
// They lie in ${XDG_RUNTIME_DIR:-/tmp/cairn-<uid>}/cairn/jobs, for their owner only. A file whose
// process is gone (owner_lock.h) is removed by whoever looks next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "cluster/environment/environment.h"
#include "owner_lock.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

struct JobEntry {
  int64_t pid = 0;
  wire::Endpoint scheduler;
  std::string cluster_id;    // empty: not known
  int64_t started_unix = 0;  // seconds
  std::string command;
  bool launcher = false;  // cairn run, which starts and stops processes
  std::string path = {};  // of the file; filled in by RunningJobs
};

// Says that a job runs here, as long as it lives.
class JobFile {
 public:
  JobFile() = default;
  ~JobFile();
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

  // pid and time are filled in. An error is no reason not to run: status then wants an address.
  Status Write(const cluster::Variables& variables, JobEntry entry);
  const std::string& path() const { return path_; }  // empty: there is none

 private:
  std::string path_;
  OwnerLock lock_;
};

// The folder, made if need be. An error if it is not this user's alone.
Result<std::string> JobFolder(const cluster::Variables& variables);
// Newest first; two launchers of the same job are one. Unreadable files are left out.
std::vector<JobEntry> RunningJobs(const cluster::Variables& variables);
// Every `cairn run` of the job that is on this machine.
std::vector<JobEntry> LaunchersOf(const cluster::Variables& variables, const std::string& cluster_id);
// This process's command line, shortened.
std::string OwnCommand();

}  // namespace cairn::tool

// cairn doctor: cores, memory, limits, shared memory, huge pages, the clock; folders and jobs.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cores.h"
#include "doctor.h"
#include "job_files.h"
#include "log_folder.h"
#include "progress.h"

namespace cairn::tool {
namespace {

namespace fs = std::filesystem;

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string GiB(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / kGiB);
  return text;
}

double MemoryField(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::strtod(line.c_str() + name.size() + 1, nullptr) * 1024;
  }
  return 0;
}

Finding Cores() {
  const uint32_t all = CoresOfMachine(), mask = CoresInMask(), usable = UsableCores();
  std::string text = Counted(usable, "core") + " of " + std::to_string(all);
  if (mask < all) text += ", affinity mask " + std::to_string(mask);
  if (const auto quota = CoresOfQuota()) {
    char number[32];
    std::snprintf(number, sizeof number, "%.1f", *quota);
    text += std::string(", container limit ") + number;
  }
  if (usable > 1) return {Health::kOk, "cores", text, ""};
  return {Health::kWarn, "cores", text,
          "servers and workers will share one core: lift the limit (taskset, --cpus)"};
}

Finding Memory() {
  const double total = MemoryField("MemTotal"), available = MemoryField("MemAvailable");
  std::string text = GiB(available) + " available of " + GiB(total);
  const auto limit = MemoryLimitBytes();
  if (limit) text += ", container limit " + GiB(static_cast<double>(*limit));
  const double usable = limit ? std::min(available, static_cast<double>(*limit)) : available;
  if (usable >= kGiB) return {Health::kOk, "memory", text, ""};
  return {Health::kWarn, "memory", text,
          "each Python worker with torch takes about 0.5 GiB: free some memory"};
}

Finding OpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool none = limit.rlim_max == RLIM_INFINITY;
  const std::string text =
      (none ? "no limit" : "up to " + std::to_string(limit.rlim_max)) + " (cairn raises its own)";
  if (none || limit.rlim_max >= 4096) return {Health::kOk, "open files", text, ""};
  return {Health::kWarn, "open files", text,
          "a server has a descriptor per worker and thread: raise `ulimit -Hn`"};
}

Finding SharedMemory() {
  const int fd = memfd_create("cairn-doctor", MFD_CLOEXEC);
  const std::string memfd = fd >= 0 ? "memfd works" : std::string("no memfd: ") + strerror(errno);
  if (fd >= 0) close(fd);
  struct statvfs shm{};
  if (statvfs("/dev/shm", &shm) != 0) {
    return {Health::kWarn, "shared memory", std::string("/dev/shm: ") + strerror(errno) + "; " + memfd,
            "DataLoader workers pass batches through /dev/shm: mount a tmpfs there"};
  }
  const double size = static_cast<double>(shm.f_blocks) * static_cast<double>(shm.f_frsize);
  const double free = static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_frsize);
  const std::string text = "/dev/shm has " + GiB(free) + " free of " + GiB(size) + "; " + memfd;
  if (fd < 0)
    return {Health::kWarn, "shared memory", text, "a security profile forbids memfd_create: allow it"};
  if (free >= kGiB / 2) return {Health::kOk, "shared memory", text, ""};
  return {Health::kWarn, "shared memory", text,
          "DataLoader workers pass batches through it: empty it, or start the container with --shm-size=2g"};
}

Finding HugePages() {
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  const std::string text = FirstLine(path);
  if (text.find("[always]") != std::string::npos || text.find("[madvise]") != std::string::npos)
    return {Health::kOk, "huge pages", text, ""};
  return {Health::kWarn, "huge pages", text.empty() ? "this kernel has no transparent ones" : text,
          text.empty() ? "large tables will be a little slower" : "as root: echo madvise > " + path};
}

Finding Clock() {
  const std::string source = FirstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const bool slow = source == "hpet" || source == "acpi_pm" || source == "jiffies";
  if (!slow) return {Health::kOk, "clock", source.empty() ? "source unknown" : source, ""};
  return {Health::kWarn, "clock", source + ": reading the time is slow",
          "look in the kernel's log why tsc was given up (dmesg | grep -i tsc)"};
}

// Makes a file there, and removes it.
Status TryWrite(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  std::string name = folder + "/.cairn-doctor-XXXXXX";
  const int fd = error ? -1 : mkstemp(name.data());
  if (fd < 0) return {Code::kIo, folder + ": " + (error ? error.message() : strerror(errno))};
  const bool wrote = write(fd, "x", 1) == 1;
  const int why = errno;
  close(fd);
  unlink(name.c_str());
  return wrote ? Status::Ok() : Status(Code::kIo, folder + ": " + strerror(why));
}

}  // namespace

std::vector<Finding> CheckMachine() {
  return {Cores(), Memory(), OpenFiles(), SharedMemory(), HugePages(), Clock()};
}

std::vector<Finding> CheckFolders(const cluster::Variables& variables) {
  std::vector<Finding> findings;
  const std::string home = StateHome(variables);
  const Status logs = home.empty() ? Status(Code::kNotFound, "neither XDG_STATE_HOME nor HOME is set")
                                   : TryWrite(home + "/runs");
  findings.push_back(logs.ok()
                         ? Finding{Health::kOk, "logs", home + "/runs", ""}
                         : Finding{Health::kWarn, "logs", logs.message(),
                                   "`cairn run` will keep none: set XDG_STATE_HOME, or give --log-dir"});
  std::error_code error;
  const std::string temporary = fs::temp_directory_path(error).string();
  const Status written = error ? Status(Code::kIo, error.message()) : TryWrite(temporary);
  findings.push_back(written.ok() ? Finding{Health::kOk, "temporary folder", temporary, ""}
                                  : Finding{Health::kFail, "temporary folder", written.message(),
                                            "set TMPDIR to a folder that can be written to"});
  const Result<std::string> folder = JobFolder(variables);
  if (!folder.ok()) {
    findings.push_back(
        {Health::kWarn, "jobs", folder.status().message(), "`cairn status` will need an address"});
    return findings;
  }
  const std::vector<JobEntry> jobs = RunningJobs(variables);
  std::string text = jobs.empty() ? "none runs here" : Counted(jobs.size(), "job") + " here now:";
  for (const JobEntry& job : jobs) text += " " + wire::ToString(job.scheduler);
  findings.push_back({Health::kOk, "jobs", text, jobs.empty() ? "" : "they share the cores with yours"});
  return findings;
}

}  // namespace cairn::tool

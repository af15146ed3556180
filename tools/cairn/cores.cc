#include "cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace cairn::tool {
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

namespace {

// The folder of this process's group below `root`, for the controller `name` ("" in version 2).
std::string GroupFolder(const std::string& root, const std::string& name) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (name.empty() ? controllers == ",," : controllers.find("," + name + ",") != std::string::npos) {
      return root + line.substr(second + 1);
    }
  }
  return root;
}

// The smallest of a limit's values from the process's group up to the root. A container sees its
// own group as the root, under a path that may not be there.
template <class Read>
auto SmallestUpwards(std::string folder, const std::string& root, Read read) -> decltype(read(folder)) {
  decltype(read(folder)) smallest;
  while (true) {
    const auto value = read(folder);
    if (value && (!smallest || *value < *smallest)) smallest = value;
    if (folder.size() <= root.size()) return smallest;
    folder.erase(std::max(folder.rfind('/'), root.size()));
  }
}

std::optional<double> QuotaIn(const std::string& folder) {
  std::istringstream both(FirstLine(folder + "/cpu.max"));
  std::string quota;
  double period = 0;
  if (both >> quota >> period) {
    if (quota == "max" || period <= 0) return std::nullopt;
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  const double old_quota = std::strtod(FirstLine(folder + "/cpu.cfs_quota_us").c_str(), nullptr);
  const double old_period = std::strtod(FirstLine(folder + "/cpu.cfs_period_us").c_str(), nullptr);
  if (old_quota <= 0 || old_period <= 0) return std::nullopt;
  return old_quota / old_period;
}

std::optional<uint64_t> MemoryIn(const std::string& folder) {
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
    const std::string text = FirstLine(folder + name);
    if (text.empty() || text[0] < '0' || text[0] > '9') continue;
    const uint64_t bytes = std::strtoull(text.c_str(), nullptr, 10);
    constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 says "none" with a huge number
    if (bytes < kNoLimit) return bytes;
  }
  return std::nullopt;
}

}  // namespace

uint32_t CoresOfMachine() { return static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

uint32_t CoresInMask() {
  for (int cpus = 1024; cpus <= 1024 * 64; cpus *= 4) {  // the mask must hold the machine's
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(size, set);
    const bool got = sched_getaffinity(0, size, set) == 0;
    const int count = got ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<uint32_t>(count);
  }
  return CoresOfMachine();
}

std::optional<double> CoresOfQuota() {
  const std::string root = "/sys/fs/cgroup", old_root = "/sys/fs/cgroup/cpu";
  const auto quota = SmallestUpwards(GroupFolder(root, ""), root, QuotaIn);
  return quota ? quota : SmallestUpwards(GroupFolder(old_root, "cpu"), old_root, QuotaIn);
}

uint32_t UsableCores() {
  const std::optional<double> quota = CoresOfQuota();
  const double limit = quota ? std::ceil(*quota) : std::numeric_limits<uint32_t>::max();
  return std::max(1u, std::min(CoresInMask(), static_cast<uint32_t>(std::min(limit, 1e9))));
}

std::optional<uint64_t> MemoryLimitBytes() {
  const std::string root = "/sys/fs/cgroup", old_root = "/sys/fs/cgroup/memory";
  const auto limit = SmallestUpwards(GroupFolder(root, ""), root, MemoryIn);
  return limit ? limit : SmallestUpwards(GroupFolder(old_root, "memory"), old_root, MemoryIn);
}

}  // namespace cairn::tool

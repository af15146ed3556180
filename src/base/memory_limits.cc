#include "base/memory_limits.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "base/random.h"

namespace cairn {
namespace {

// Version 1 says "no limit" as a number near 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // "max", or no such file
  return number;
}

// "Name:   123 kB" or "name 123" somewhere in a file.
std::optional<uint64_t> ReadField(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t digits = line.find_first_of("0123456789", name.size());
    if (digits == std::string::npos) continue;
    return std::strtoull(line.c_str() + digits, nullptr, 10);
  }
  return std::nullopt;
}

uint64_t HashOf(const std::string& text, uint64_t seed) {
  return Mix64(seed, static_cast<uint64_t>(std::hash<std::string>{}(text)));
}

uint64_t MachineOf(const MemoryFiles& files) {
  std::ifstream file(files.proc + "/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return HashOf(id, 1);
}

void Tighten(MemoryLeft& left, MemoryKind kind, uint64_t bytes, uint64_t group) {
  if (left.kind == MemoryKind::kUnknown || bytes < left.bytes) left = {kind, bytes, group};
}

void LookAtMachine(const MemoryFiles& files, uint64_t machine, MemoryLeft& left) {
  const std::string meminfo = files.proc + "/meminfo";
  const auto available = ReadField(meminfo, "MemAvailable:");
  if (!available) return;
  const uint64_t swap = ReadField(meminfo, "SwapFree:").value_or(0);
  Tighten(left, MemoryKind::kMachine, (*available + swap) * 1024, machine);
}

void LookAtAddressSpace(const MemoryFiles& files, uint64_t machine, MemoryLeft& left) {
  if (files.address_space == UINT64_MAX) return;
  const auto pages = ReadNumber(files.proc + "/self/statm");
  if (!pages) return;
  const uint64_t used = *pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t rest = files.address_space > used ? files.address_space - used : 0;
  Tighten(left, MemoryKind::kAddressSpace, rest, Mix64(machine, static_cast<uint64_t>(getpid())));
}

// Where one hierarchy has its numbers.
struct Hierarchy {
  std::string root;
  const char* limit;
  const char* used;
  const char* reclaimable;  // in memory.stat
};

// A group is bound by its own limit and by those of all groups around it.
void LookAtGroups(const Hierarchy& at, std::string path, uint64_t machine, MemoryLeft& left) {
  // In a container the path may be one of the host's, which is not there: then the root is ours.
  struct stat found{};
  if (stat((at.root + path).c_str(), &found) != 0) path.clear();
  while (true) {
    const std::string group = at.root + path;
    const auto limit = ReadNumber(group + "/" + at.limit);
    const auto used = ReadNumber(group + "/" + at.used);
    if (limit && used && *limit < kNoLimit) {
      // Files that are only cached go when memory is wanted.
      const uint64_t files = ReadField(group + "/memory.stat", at.reclaimable).value_or(0);
      const uint64_t held = *used - std::min(*used, files);
      const uint64_t node = stat(group.c_str(), &found) == 0 ? found.st_ino : 0;
      Tighten(left, MemoryKind::kControlGroup, *limit - std::min(*limit, held),
              HashOf(node == 0 ? group : std::to_string(node), machine));
    }
    if (path.empty() || path == "/") return;
    path.resize(path.find_last_of('/'));
  }
}

void LookAtControlGroups(const MemoryFiles& files, uint64_t machine, MemoryLeft& left) {
  std::ifstream file(files.proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path", or "5:memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      LookAtGroups({files.cgroup, "memory.max", "memory.current", "inactive_file "}, path, machine, left);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      LookAtGroups({files.cgroup + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                    "total_inactive_file "},
                   path, machine, left);
    }
  }
}

}  // namespace

MemoryFiles MemoryFilesOfThisProcess() {
  MemoryFiles files;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    files.address_space = limit.rlim_cur;
  return files;
}

MemoryLeft ReadMemoryLeft(const MemoryFiles& files) {
  MemoryLeft left;
  const uint64_t machine = MachineOf(files);
  LookAtMachine(files, machine, left);
  LookAtControlGroups(files, machine, left);
  LookAtAddressSpace(files, machine, left);
  return left;
}

const char* Words(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kUnknown: break;
    case MemoryKind::kMachine: return "the machine's memory";
    case MemoryKind::kControlGroup: return "the control group's limit";
    case MemoryKind::kAddressSpace: return "ulimit -v";
  }
  return "unknown";
}

}  // namespace cairn

// How much more memory this process may take before the system refuses it or kills it: the tightest of
// `ulimit -v`, the control group's limit and what the machine has left. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

// The numbers travel in heartbeats.
enum class MemoryKind : uint8_t {
  kUnknown = 0,
  kMachine = 1,       // what the machine has left, swap included
  kControlGroup = 2,  // the limit of a control group: a container, a batch job
  kAddressSpace = 3,  // `ulimit -v`
};

struct MemoryLeft {
  MemoryKind kind = MemoryKind::kUnknown;  // the tightest limit; kUnknown: none could be read
  uint64_t bytes = 0;                      // left under it
  uint64_t group = 0;                      // equal for processes that share it
};

// Exit code of a process that found no memory: 128 + ENOMEM, so above 128 as those of signals are.
inline constexpr int kOutOfMemoryCode = 140;

// Where to look, so that tests can lay the files out themselves.
struct MemoryFiles {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
  uint64_t address_space = UINT64_MAX;  // RLIMIT_AS; UINT64_MAX: none
};
// As they are for this process.
MemoryFiles MemoryFilesOfThisProcess();

MemoryLeft ReadMemoryLeft(const MemoryFiles& files);

// "the machine's memory", "the control group's limit", "ulimit -v".
const char* Words(MemoryKind kind);

}  // namespace cairn

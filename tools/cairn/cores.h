// What of this machine the process may use: cores and memory, as the affinity mask and the
// container's limits (cgroups, both versions) have it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn::tool {

uint32_t CoresOfMachine();
uint32_t CoresInMask();                          // sched_getaffinity
std::optional<double> CoresOfQuota();            // of the container; nothing where there is no limit
uint32_t UsableCores();                          // the smaller of the two, at least 1
std::optional<uint64_t> MemoryLimitBytes();      // of the container
std::string FirstLine(const std::string& path);  // of a file like those of /sys; empty where there is none

}  // namespace cairn::tool

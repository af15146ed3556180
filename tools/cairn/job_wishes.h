// What `cairn stop` and `cairn scale --workers` ask of a launcher on this machine: a small file beside the
// job's (job_files.h), which the launcher looks at now and then. The folder is its owner's alone. A
// process id would not do: containers that share the folder don't share those. The launcher answers with
// another one.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "cairn/status.h"

namespace cairn::tool {

struct Wishes {
  uint32_t workers = 0;  // 0: as it is
  bool stop = false;
  bool operator==(const Wishes&) const = default;
};

// `job_path`: JobEntry::path. A later wish replaces an earlier one.
Status WriteWishes(const std::string& job_path, const Wishes& wishes);
// Nothing where there are none, or what is there can't be read.
std::optional<Wishes> ReadWishes(const std::string& job_path);

// What the launcher makes of `workers`, in a file of its own: how many it has by now been asked for, and the
// ranks that it has started for that (WorkerScale::called).
struct Following {
  uint32_t workers = 0;
  std::set<uint32_t> called;
  bool operator==(const Following&) const = default;
};
Status WriteFollowing(const std::string& job_path, const Following& following);
std::optional<Following> ReadFollowing(const std::string& job_path);

// Both files.
void RemoveWishes(const std::string& job_path);

}  // namespace cairn::tool

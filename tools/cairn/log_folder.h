// The folder where `cairn run` leaves the output of every process, a file each: the user's choice,
// or a new one among this user's newest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/status.h"
#include "cluster/environment/environment.h"
#include "cluster/supervise/rotating_file.h"
#include "owner_lock.h"

namespace cairn::tool {

class LogFolder {
 public:
  static constexpr size_t kKept = 20;
  // Nobody looks after the default folder: a process that talks without end must not fill the disk. Of each
  // file there is an older one, too.
  static constexpr uint64_t kMaxDefaultFileBytes = uint64_t{128} << 20;

  LogFolder() = default;  // no logs
  // A folder that the user named; files that are there already are appended to.
  static Result<LogFolder> At(const std::string& path);
  // ${XDG_STATE_HOME:-~/.local/state}/cairn/runs/<time>-<id>. Removes all but the newest kKept, and
  // nothing that belongs to a job that still runs.
  static Result<LogFolder> New(const cluster::Variables& variables, const std::string& id);

  const std::string& path() const { return path_; }  // empty: no logs
  uint64_t max_file_bytes() const { return max_file_bytes_; }

 private:
  std::string path_;
  uint64_t max_file_bytes_ = cluster::RotatingFile::kNoBound;
  OwnerLock lock_;
};

// ${XDG_STATE_HOME:-~/.local/state}/cairn; empty where neither is known.
std::string StateHome(const cluster::Variables& variables);

// One process's file.
class LogFile {
 public:
  void Open(const LogFolder& folder, const std::string& name);
  void Write(std::string_view line) { file_.Write(line); }
  void Flush() { failed_ = !file_.Flush() || failed_; }
  // Not ok once it could not be written; told once.
  Status TakeError();

 private:
  cluster::RotatingFile file_;
  bool failed_ = false;
};

}  // namespace cairn::tool

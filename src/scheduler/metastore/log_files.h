// The files of a log, and no more of them than it needs: os_log_files.h has the real ones,
// memory_disk.h those of tests and the simulator, which are torn, lost and reordered. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/status.h"

namespace cairn::scheduler {

class LogFile {
 public:
  virtual ~LogFile() = default;
  // Behind what is there. Durable once Sync has returned ok; after a Sync that failed nobody knows what
  // is, and a later one that returns ok does not say.
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  virtual Status Sync() = 0;
  virtual Result<std::vector<std::byte>> ReadAll() = 0;
};

// A directory that is ours alone.
class LogFiles {
 public:
  virtual ~LogFiles() = default;
  // Null where there is no such file.
  virtual Result<std::unique_ptr<LogFile>> Open(const std::string& name) = 0;
  // An empty one, whatever was there.
  virtual Result<std::unique_ptr<LogFile>> Create(const std::string& name) = 0;
  virtual Status Remove(const std::string& name) = 0;  // ok where there is none
  // In one step: whoever looks finds the old file or the new one.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // What was created, renamed and removed is durable.
  virtual Status Sync() = 0;
  virtual std::string PathOf(const std::string& name) const = 0;  // for messages
};

}  // namespace cairn::scheduler

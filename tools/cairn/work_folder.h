// The launcher's temporary folder, for the scheduler's log: made at the start, removed at the end. Those of
// launchers that were killed together with their guards are removed by the next one.
#pragma once

#include <string>

#include "cairn/status.h"
#include "owner_lock.h"

namespace cairn::tool {

class WorkFolder {
 public:
  WorkFolder() = default;
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  Status Make();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  OwnerLock lock_;
};

}  // namespace cairn::tool

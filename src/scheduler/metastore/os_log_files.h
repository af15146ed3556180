// A log's files in a directory of the operating system.
#pragma once

#include <memory>
#include <string>

#include "scheduler/metastore/log_files.h"

namespace cairn::scheduler {

// Makes the directory where it is missing, and locks it while the result lives. kUnavailable: another
// scheduler has it. Other errors (kIo) name the path and what the system said.
Result<std::unique_ptr<LogFiles>> OpenLogDirectory(const std::string& directory);

}  // namespace cairn::scheduler

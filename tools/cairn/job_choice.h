// Which job a tool means: by the address or name that it was given, by the environment, or because
// only one runs here (job_files.h).
#pragma once

#include <optional>
#include <string>

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

// `given`: HOST:PORT of a scheduler, several with commas between (of which the one is chosen that leads),
// or the beginning of a job's name. Without it: the scheduler that the environment names, or else the
// job that runs here. The error lists what could be meant.
Result<wire::Endpoint> ChooseScheduler(const std::optional<std::string>& given);

// For the help of every command that takes it.
inline constexpr char kSchedulerHelp[] = "HOST:PORT of the scheduler, or the beginning of a job's name";

}  // namespace cairn::tool

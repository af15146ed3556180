// A scheduler's status as text: for `cairn status`, and for `cairn top`, which shows it again and again.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

// The status as JSON, as the scheduler has sent it: one object. A refusal is an error with its text.
Result<std::string> AskStatus(const wire::Endpoint& scheduler, int64_t timeout_ms);

// Whole lines. `json` must be one object; what is missing in it is shown as "-", or not at all.
std::string StatusText(const std::string& json);

}  // namespace cairn::tool

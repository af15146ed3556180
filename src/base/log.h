// Lines for the user. Roles and nodes take a LogLine in their options; this is the default one.
#pragma once

#include <functional>
#include <string>

namespace cairn {

using LogLine = std::function<void(const std::string&)>;

// "[prefix] line" on standard error, one write a line, so that lines of several threads and
// processes stay whole. Callable from any thread.
LogLine ToStandardError(std::string prefix);
// The same for a prefix that changes (a worker learns its rank late): it is asked for every line.
LogLine ToStandardError(std::function<std::string()> prefix);

}  // namespace cairn

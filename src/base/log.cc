#include "base/log.h"

#include <unistd.h>

#include <utility>

namespace cairn {

LogLine ToStandardError(std::function<std::string()> prefix) {
  return [prefix = std::move(prefix)](const std::string& line) {
    const std::string whole = "[" + prefix() + "] " + line + "\n";
    // A log that can't be written is nobody's error.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, whole.data(), whole.size());
  };
}

LogLine ToStandardError(std::string prefix) {
  return ToStandardError(std::function<std::string()>([prefix = std::move(prefix)] { return prefix; }));
}

}  // namespace cairn

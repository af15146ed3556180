#include "ready_words.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace cairn::tool {

void TellLauncher(int ready_fd, const std::string& line) {
  if (ready_fd < 0) return;
  const std::string whole = line + "\n";
  for (size_t at = 0; at < whole.size();) {
    const ssize_t written = write(ready_fd, whole.data() + at, whole.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    at += static_cast<size_t>(written);
  }
}

}  // namespace cairn::tool

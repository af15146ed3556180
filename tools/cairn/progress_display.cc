#include "progress_display.h"

#include <string>

namespace cairn::tool {

void ProgressDisplay::Show(const ProgressView& view, int64_t now_ms) {
  const std::string line = ProgressLine(view);
  if (output_.screen().live()) {
    next_ms_ = now_ms + 500;
    return output_.screen().SetProgress(line);
  }
  const bool first = next_ms_ == 0;
  next_ms_ = now_ms + static_cast<int64_t>(options_.progress_every_s * 1000);
  if (!first) output_.Say(line.substr(line.find(' ') + 1));
}

}  // namespace cairn::tool

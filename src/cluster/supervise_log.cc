#include "cluster/supervise_log.h"

#include <algorithm>

namespace cairn::cluster {

void OutputLines::Emit(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  tail_.emplace_back(line);
  if (tail_.size() > kTailLines) tail_.pop_front();
  on_line_(line);
}

void OutputLines::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t room = kMaxLineBytes - partial_.size();
    const size_t take = std::min(newline == std::string_view::npos ? bytes.size() : newline, room);
    partial_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    const bool ended = !bytes.empty() && bytes.front() == '\n';
    if (ended) bytes.remove_prefix(1);
    if (ended || partial_.size() == kMaxLineBytes) {
      Emit(partial_);
      partial_.clear();
    }
  }
}

void OutputLines::Flush() {
  if (partial_.empty()) return;
  Emit(partial_);
  partial_.clear();
}

}  // namespace cairn::cluster

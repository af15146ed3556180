#include "cluster/supervise/supervise_log.h"

#include <algorithm>

namespace cairn::cluster {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";

// torch.distributed puts "[rank0]: " before every line of a traceback.
std::string_view Without(std::string_view prefix, std::string_view line) {
  return line.starts_with(prefix) ? line.substr(prefix.size()) : line;
}

bool Chains(std::string_view line) {
  return line.find("During handling of the above exception") != std::string_view::npos ||
         line.find("The above exception was the direct cause") != std::string_view::npos;
}

}  // namespace

bool OutputLines::StartsTraceback(std::string_view line) {
  return line.find(kTraceback) != std::string_view::npos;
}

OutputLines::Ending OutputLines::ending() const {
  const auto traceback_before = [this](size_t end) {
    while (end > 0 && !StartsTraceback(kept_[end - 1])) --end;
    return end;  // one past its first line; 0: none
  };
  size_t begin = kept_.size() - std::min(kept_.size(), kTailLines);
  const size_t last = traceback_before(kept_.size());
  bool found = false;
  if (last > 0) {
    // Its frames are indented, then comes the exception; many lines after that mean that the
    // program went on.
    const std::string_view prefix =
        std::string_view(kept_[last - 1]).substr(0, kept_[last - 1].find(kTraceback));
    size_t at = last;
    while (at < kept_.size() && Without(prefix, kept_[at]).starts_with(' ')) ++at;
    found = kept_.size() - at <= kTailLines;
  }
  if (found) {
    begin = last - 1;
    while (begin > 0) {  // the exception that was being handled, as long as there is one
      size_t above = begin;
      while (above > 0 && kept_[above - 1].find_first_not_of(' ') == std::string::npos) --above;
      if (above == 0 || !Chains(kept_[above - 1])) break;
      const size_t cause = traceback_before(above);
      if (cause == 0) break;
      begin = cause - 1;
    }
  }
  return {{kept_.begin() + static_cast<std::ptrdiff_t>(begin), kept_.end()}, found};
}

void OutputLines::Emit(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  kept_.emplace_back(line);
  kept_bytes_ += line.size();
  while (kept_.size() > kMaxKeptLines || (kept_bytes_ > kMaxKeptBytes && kept_.size() > 1)) {
    kept_bytes_ -= kept_.front().size();
    kept_.pop_front();
  }
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

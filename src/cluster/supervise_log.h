// A child's output as lines: whole lines out of whatever pieces come, and the last ones kept for
// the end of a failed job.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace cairn::cluster {

class OutputLines {
 public:
  static constexpr size_t kMaxLineBytes = 64 * 1024;  // a longer line is cut into pieces
  static constexpr size_t kTailLines = 15;

  explicit OutputLines(std::function<void(std::string_view)> on_line) : on_line_(std::move(on_line)) {}
  void Feed(std::string_view bytes);
  void Flush();  // the end: what has no newline is a line too
  const std::deque<std::string>& tail() const { return tail_; }

 private:
  void Emit(std::string_view line);
  std::function<void(std::string_view)> on_line_;
  std::string partial_;
  std::deque<std::string> tail_;
};

}  // namespace cairn::cluster

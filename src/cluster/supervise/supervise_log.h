// A child's output as lines: whole lines out of whatever pieces come, and the last ones kept for
// the end of a failed job: its Python traceback, if it ends with one.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::cluster {

class OutputLines {
 public:
  static constexpr size_t kMaxLineBytes = 64 * 1024;  // a longer line is cut into pieces
  static constexpr size_t kTailLines = 15;
  static constexpr size_t kMaxKeptLines = 200;  // a traceback with its causes may be long
  static constexpr size_t kMaxKeptBytes = 256 * 1024;

  struct Ending {
    std::vector<std::string> lines;
    bool traceback = false;
  };

  explicit OutputLines(std::function<void(std::string_view)> on_line) : on_line_(std::move(on_line)) {}
  void Feed(std::string_view bytes);
  void Flush();  // the end: what has no newline is a line too
  // The traceback that the output ends with, and those that led to it; else the last kTailLines.
  Ending ending() const;

  static bool StartsTraceback(std::string_view line);

 private:
  void Emit(std::string_view line);
  std::function<void(std::string_view)> on_line_;
  std::string partial_;
  std::deque<std::string> kept_;
  size_t kept_bytes_ = 0;
};

}  // namespace cairn::cluster

// What the user of `cairn run` sees: the lines of all processes on standard output, the launcher's
// own on standard error, and on a terminal one line of progress that stays at the bottom and is
// never mixed into the others.
#pragma once

#include <string>
#include <string_view>

namespace cairn::tool {

class Screen {
 public:
  // live: standard error is a terminal on which a line can be redrawn.
  explicit Screen(bool live) : live_(live) {}
  ~Screen() { EraseProgress(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool live() const { return live_; }
  // Whole lines for standard output; they go out with the next Flush, Say or Progress.
  void Print(std::string_view text) { output_.append(text); }
  // 0, or the errno of a standard output that can't be written to. What could not be written is
  // dropped, then and from then on.
  int Flush();
  // A line on standard error, after everything printed before.
  void Say(const std::string& line);
  // Live: the line at the bottom from now on; empty: none.
  void SetProgress(const std::string& line);

 private:
  int WriteOutput();
  void EraseProgress();
  void DrawProgress();

  const bool live_;
  bool broken_ = false;  // standard output
  int error_ = 0;        // not told yet
  std::string output_;
  std::string progress_;  // wanted
  bool drawn_ = false;
};

// Whether standard error is a terminal that can redraw a line.
bool CanRedraw(bool even_if_dumb);

}  // namespace cairn::tool

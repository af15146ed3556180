#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "commands.h"

namespace cairn::tool {
namespace {

void ToStandardError(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

size_t TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

bool CanRedraw(bool even_if_dumb) {
  if (isatty(STDERR_FILENO) != 1) return false;
  const char* terminal = getenv("TERM");
  return even_if_dumb || (terminal != nullptr && std::string_view(terminal) != "dumb");
}

int Screen::WriteOutput() {
  size_t at = 0;
  while (at < output_.size() && !broken_) {
    const ssize_t written = write(STDOUT_FILENO, output_.data() + at, output_.size() - at);
    if (written > 0) {
      at += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd wait{STDOUT_FILENO, POLLOUT, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      error_ = errno;
      broken_ = true;
    }
  }
  output_.clear();
  return std::exchange(error_, 0);
}

int Screen::Flush() {
  if (output_.empty()) return std::exchange(error_, 0);
  EraseProgress();
  const int error = WriteOutput();
  DrawProgress();
  return error;
}

void Screen::Say(const std::string& line) {
  EraseProgress();
  error_ = WriteOutput();  // told by the next Flush
  PrintLine(line);
  DrawProgress();
}

void Screen::SetProgress(const std::string& line) {
  if (!live_ || line == progress_) return;
  progress_ = line;
  EraseProgress();
  DrawProgress();
}

void Screen::EraseProgress() {
  if (std::exchange(drawn_, false)) ToStandardError("\r\033[K");
}

void Screen::DrawProgress() {
  if (!live_ || progress_.empty()) return;
  // A line that wraps could not be erased.
  ToStandardError(progress_.substr(0, std::min(progress_.size(), TerminalColumns() - 1)));
  drawn_ = true;
}

}  // namespace cairn::tool

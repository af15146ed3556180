#include "live_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "status_poller.h"

namespace cairn::tool {
namespace {

constexpr std::string_view kTake = "\033[?1049h\033[?25l";  // another screen, no cursor
constexpr std::string_view kGiveBack = "\033[?25h\033[?1049l";

bool Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

bool IsTerminal() {
  const char* name = getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && name != nullptr && std::string_view(name) != "dumb";
}

// As many bytes of `line` as fill `columns` places: what begins with 10… continues a character.
std::string_view Cut(std::string_view line, size_t columns) {
  size_t at = 0, places = 0;
  for (; at < line.size(); ++at) {
    if ((static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) continue;
    if (places++ == columns) break;
  }
  return line.substr(0, at);
}

}  // namespace

LiveScreen::LiveScreen() : terminal_(IsTerminal()) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

LiveScreen::~LiveScreen() {
  if (keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  // What was shown last stays in sight.
  if (taken_) {
    Write(kGiveBack);
    Write(text_);
  }
  if (signal_fd_ >= 0) close(signal_fd_);
}

bool LiveScreen::Show(const std::string& text) {
  text_ = text;
  if (!terminal_) {
    const bool first = first_;
    first_ = false;
    return Write(first ? text : "\n" + text);
  }
  if (!taken_) {
    // A background process that asks for keys would be stopped.
    if (isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
        tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios single = before_;
      single.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &single) == 0;
    }
    taken_ = Write(kTake);
    if (!taken_) return false;
  }
  return Draw();
}

bool LiveScreen::Draw() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
  const size_t rows = known ? size.ws_row : 24, columns = known ? size.ws_col : 80;
  std::string out = "\033[H";
  std::string_view rest = text_;
  for (size_t row = 0; row < rows && !rest.empty(); ++row) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    out.append(row == 0 ? "" : "\r\n").append(Cut(rest.substr(0, end), columns)).append("\033[K");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return Write(out + "\033[J");
}

bool LiveScreen::Wait(int64_t ms) {
  const int64_t end_ms = MonotonicMs() + ms;
  while (true) {
    const int64_t left = end_ms - MonotonicMs();
    if (left <= 0) return true;
    pollfd waits[] = {{signal_fd_, POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(waits, 2, static_cast<int>(std::min<int64_t>(left, 60'000))) <= 0) continue;
    if (waits[1].revents != 0) {
      char key = 0;
      const ssize_t got = read(STDIN_FILENO, &key, 1);
      if (got == 1 && (key == 'q' || key == 'Q')) return false;
      if (got <= 0) {  // the terminal is gone
        tcsetattr(STDIN_FILENO, TCSANOW, &before_);
        keys_ = false;
      }
    }
    signalfd_siginfo came{};
    while (read(signal_fd_, &came, sizeof came) == static_cast<ssize_t>(sizeof came)) {
      if (came.ssi_signo != SIGWINCH) {
        signal_ = static_cast<int>(came.ssi_signo);
        return false;
      }
      if (taken_) Draw();
    }
  }
}

}  // namespace cairn::tool

// A terminal that shows one text, redrawn: `cairn top`. On anything else the text is printed, block
// after block. SIGINT, SIGTERM, SIGHUP and the key q end the wait; the terminal is as before when the
// object is gone.
#pragma once

#include <termios.h>

#include <cstdint>
#include <string>

namespace cairn::tool {

class LiveScreen {
 public:
  // Blocks the signals; must be made before any thread.
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  bool terminal() const { return terminal_; }
  // The first call takes the terminal over. False if standard output can't be written to any more.
  bool Show(const std::string& text);
  // Waits for so long, or until somebody wants to end it: false then. A resized terminal is redrawn.
  bool Wait(int64_t ms);
  // The signal that ended it, 0 if it was the key.
  int signal() const { return signal_; }

 private:
  bool Draw();

  const bool terminal_;
  bool taken_ = false;  // the terminal shows our screen
  bool first_ = true;
  bool keys_ = false;  // standard input gives single keys
  termios before_{};
  int signal_fd_ = -1;
  int signal_ = 0;
  std::string text_;
};

}  // namespace cairn::tool

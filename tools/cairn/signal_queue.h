// The launcher's signals, as something to wait for beside its processes' output.
#pragma once

#include <optional>

#include "cairn/status.h"

namespace cairn::tool {

class SignalQueue {
 public:
  SignalQueue() = default;
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // From now on signals come here. Before any thread is started: it inherits that they are blocked.
  Status Open();
  // The next one that asks the launcher to end. That of a child's end only wakes whoever polls fd().
  std::optional<int> Next();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace cairn::tool

// Child processes of the launcher: each in a process group of its own, its output in a pipe, and
// killed by the kernel if the launcher dies. To be called from the main thread: the kernel kills a child
// when the thread that started it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cairn/status.h"

namespace cairn::cluster {

struct ChildOptions {
  std::vector<std::string> command;      // the program, looked up in PATH, and its arguments
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  int keep_fd = -1;                      // one descriptor that stays open in the child
};

struct Child {
  pid_t pid = -1;      // also its process group
  int output_fd = -1;  // what it writes to standard output and error; non-blocking; the caller closes it
};

// Returns when the program runs; an error says why it can't.
Result<Child> StartChild(const ChildOptions& options);

}  // namespace cairn::cluster

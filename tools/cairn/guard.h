// Cleans up after a launcher that was killed. The kernel kills the launcher's children with it, but
// not what those have started; the guard, a small process of its own, waits for the launcher's end
// and kills their process groups, and removes the temporary folder.
#pragma once

#include <sys/types.h>

#include <string>

namespace cairn::tool {

class Guard {
 public:
  Guard() = default;
  // An orderly end: there is nothing to clean up.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // `self`: this program. Without a guard everything works but the above, so nothing is reported.
  void Start(const std::string& self, const std::string& folder);
  void Add(pid_t group) { Tell('+', std::to_string(group)); }
  void Remove(pid_t group) { Tell('-', std::to_string(group)); }

 private:
  void Tell(char what, const std::string& text);
  pid_t pid_ = -1;
  int fd_ = -1;
};

// The guard's own main: reads what Guard tells from standard input until the launcher is gone.
int RunGuard();

}  // namespace cairn::tool

// Cleans up after a launcher that was killed. The kernel kills the launcher's children with it, but
// not what those have started; the guard, a small process of its own, waits for the launcher's end,
// kills their process groups and whoever else has the launcher's mark in its environment, and removes
// the temporary folder. The mark finds processes that have left the group (setsid) and whose parents
// are gone; one that has also thrown away its environment is not found.
#pragma once

#include <sys/types.h>

#include <string>

namespace cairn::tool {

// A launcher below another one adds its mark to the other's, with a colon between.
inline constexpr char kMarkVariable[] = "CAIRN_RUN_MARK";

class Guard {
 public:
  Guard() = default;
  // An orderly end: there is nothing to clean up.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // `self`: this program. `mark`: the value, or the end of the value, of kMarkVariable in every child.
  // Without a guard everything works but the above, so nothing is reported.
  void Start(const std::string& self, const std::string& folder, const std::string& mark);
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

#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace cairn {
void CheckFailed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "cairn: broken invariant: %s (%s:%d)\n", what, file, line);
  std::abort();
}
}  // namespace cairn

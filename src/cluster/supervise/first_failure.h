// Which worker failed first. It may not be the first that ended: one is still busy ending, after its
// traceback, when another falls over the consequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::cluster {

struct FailedWorker {
  int64_t traceback_ms = 0;  // when it began to print its last one; 0: never
  bool ends_with_a_traceback = false;
};

// `told`: of the one that the supervisor names. The index of the one in `others` that was before it;
// others.size(): none was.
size_t FirstToFail(int64_t told_traceback_ms, const std::vector<FailedWorker>& others);

}  // namespace cairn::cluster

#include "cluster/supervise/first_failure.h"

namespace cairn::cluster {

size_t FirstToFail(int64_t told_traceback_ms, const std::vector<FailedWorker>& others) {
  constexpr int64_t kTogetherMs = 10'000;  // a traceback from before that was not deadly
  size_t first = others.size();
  if (told_traceback_ms == 0) return first;
  int64_t first_ms = told_traceback_ms;
  for (size_t i = 0; i < others.size(); ++i) {
    const FailedWorker& other = others[i];
    const bool near = other.traceback_ms >= told_traceback_ms - kTogetherMs;
    if (!near || other.traceback_ms >= first_ms || !other.ends_with_a_traceback) continue;
    first = i;
    first_ms = other.traceback_ms;
  }
  return first;
}

}  // namespace cairn::cluster

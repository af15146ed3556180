// The median of a few timed repetitions.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace bench {

inline double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Median of the seconds that `work` takes, `times` times after one that warms up.
template <class Work>
double MedianSeconds(int times, Work work) {
  work();
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const double start = SecondsNow();
    work();
    seconds.push_back(SecondsNow() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + times / 2, seconds.end());
  return seconds[times / 2];
}

}  // namespace bench

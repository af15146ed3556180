// What the benchmarks of a cluster share: how often a piece of work is run, and what becomes of an
// error.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "cairn/status.h"
#include "report.h"

namespace bench {

inline void Check(const cairn::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "benchmark: %s\n", status.ToString().c_str());
  std::exit(1);
}

// Runs `work` for the given time, three times at least and a thousand times at most, and adds how
// many microseconds each run took.
inline void Sample(double seconds, const std::function<void()>& work, std::vector<double>* micros) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int runs = 0; runs < 3 || (Clock::now() < end && runs < 1000); ++runs) {
    const auto start = Clock::now();
    work();
    micros->push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
}

// The median of such runs; two unmeasured ones before them warm up buffers and pages.
inline double MedianMicros(double seconds, const std::function<void()>& work) {
  work();
  work();
  std::vector<double> micros;
  Sample(seconds, work, &micros);
  return Median(std::move(micros));
}

}  // namespace bench

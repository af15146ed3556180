// Where processes count their heap allocations for others to read: a file that all of them map, named
// by CAIRN_BENCH_ALLOCATIONS. Written by preload.cc in every process, read by the benchmark.
#pragma once

#include <atomic>
#include <cstdint>

namespace bench {

inline constexpr const char* kCounterVariable = "CAIRN_BENCH_ALLOCATIONS";
inline constexpr uint32_t kMaxCounters = 64;

struct ProcessCounter {
  std::atomic<uint64_t> allocations;
  std::atomic<int32_t> pid;  // 0: none
  char role[52];             // its CAIRN_ROLE; empty: none
};
struct CounterPage {
  std::atomic<uint32_t> used;  // counters taken; may run beyond kMaxCounters, whose owners don't count
  ProcessCounter processes[kMaxCounters];
};
static_assert(sizeof(ProcessCounter) == 64 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace bench

// How many heap allocations this process and the servers have made so far, where they were started
// with libcairn_count_allocations.so (preload.cc) and CAIRN_BENCH_ALLOCATIONS.
#pragma once

#include <cstdint>
#include <memory>

namespace bench {

struct CounterPage;

struct AllocationCounts {
  uint64_t client = 0;   // this process
  uint64_t servers = 0;  // all servers together
};

class Allocations {
 public:
  // Null where nothing is counted.
  static std::unique_ptr<Allocations> Open();
  ~Allocations();
  AllocationCounts Now() const;

 private:
  explicit Allocations(const CounterPage* page) : page_(page) {}
  const CounterPage* page_;
};

}  // namespace bench

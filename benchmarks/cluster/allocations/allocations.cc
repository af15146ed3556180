#include "allocations/allocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "allocations/counter_page.h"

namespace bench {

std::unique_ptr<Allocations> Allocations::Open() {
  const char* path = std::getenv(kCounterVariable);
  if (path == nullptr) return nullptr;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* p = mmap(nullptr, sizeof(CounterPage), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return nullptr;
  return std::unique_ptr<Allocations>(new Allocations(static_cast<const CounterPage*>(p)));
}

Allocations::~Allocations() { munmap(const_cast<CounterPage*>(page_), sizeof(CounterPage)); }

AllocationCounts Allocations::Now() const {
  AllocationCounts counts;
  const uint32_t used = std::min(page_->used.load(), kMaxCounters);
  for (uint32_t i = 0; i < used; ++i) {
    const ProcessCounter& process = page_->processes[i];
    if (process.pid == getpid()) counts.client += process.allocations;
    if (std::string_view(process.role) == "server") counts.servers += process.allocations;
  }
  return counts;
}

}  // namespace bench

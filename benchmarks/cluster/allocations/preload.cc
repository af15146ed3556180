// libcairn_count_allocations.so, for LD_PRELOAD: counts malloc and its relatives (operator new calls
// them) of a process in the file that counter_page.h describes. glibc only. Never allocates itself.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "counter_page.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<bench::ProcessCounter*> mine{nullptr};

void Count() {
  if (auto* counter = mine.load(std::memory_order_relaxed))
    counter->allocations.fetch_add(1, std::memory_order_relaxed);
}

__attribute__((constructor)) void Begin() {
  const char* path = getenv(bench::kCounterVariable);
  if (path == nullptr) return;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* p = mmap(nullptr, sizeof(bench::CounterPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return;
  auto* page = static_cast<bench::CounterPage*>(p);
  const uint32_t index = page->used.fetch_add(1);
  if (index >= bench::kMaxCounters) return;
  bench::ProcessCounter& counter = page->processes[index];
  if (const char* role = getenv("CAIRN_ROLE")) strncpy(counter.role, role, sizeof(counter.role) - 1);
  counter.pid = getpid();
  mine = &counter;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* old, size_t bytes) {
  Count();
  return __libc_realloc(old, bytes);
}
__attribute__((visibility("default"))) void* memalign(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, size_t alignment, size_t bytes) {
  Count();
  void* p = __libc_memalign(alignment, bytes);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
}

// Counts what a test program takes from the heap, by replacing operator new. Included by one file of
// the program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
thread_local long allocations = 0;
}  // namespace

// Not inlined: the compiler would see free() on what new gave, and warn.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
// std::stable_sort takes its memory so; AddressSanitizer has one of its own, whose memory is not free()'s.
__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }

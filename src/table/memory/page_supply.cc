#include "table/memory/page_supply.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <new>

namespace cairn::table {
namespace {
// Longer than a page takes on a slow host, so that who is faster than the supply waits for the rest
// of a page rather than begin one.
constexpr std::chrono::milliseconds kPatience(4);
constexpr size_t kSmallPage = 4096;  // at most what a page is where there are no huge ones
}  // namespace

std::byte* MapHugePages(size_t bytes) {
  constexpr size_t kHuge = PageSupply::kPageBytes;
  void* mapped = mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const raw = static_cast<std::byte*>(mapped);
  const size_t head = (kHuge - reinterpret_cast<uintptr_t>(raw) % kHuge) % kHuge;
  if (head > 0) munmap(raw, head);
  munmap(raw + head + bytes, kHuge - head);
  madvise(raw + head, bytes, MADV_HUGEPAGE);  // where there are none ordinary pages remain
  return raw + head;
}

namespace {
// Null: the system has no more.
std::byte* TouchedPage() {
  std::byte* page = nullptr;
  try {
    page = MapHugePages(PageSupply::kPageBytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  for (size_t at = 0; at < PageSupply::kPageBytes; at += kSmallPage)
    *static_cast<volatile std::byte*>(page + at) = std::byte{0};
  return page;
}
}  // namespace

PageSupply::~PageSupply() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wanted_.WakeAll();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  for (std::byte* page : pages_) munmap(page, kPageBytes);
}

std::byte* PageSupply::Take() {
  const MutexLock lock(mutex_);
  if (failed_) return nullptr;
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Work(); });
    return nullptr;
  }
  const auto patient_until = Condition::Clock::now() + kPatience;
  while (pages_.empty() && !failed_ && ready_.WaitUntil(mutex_, patient_until)) continue;
  if (pages_.empty()) return nullptr;
  std::byte* const page = pages_.back();
  pages_.pop_back();
  ++taken_;
  wanted_.WakeOne();
  return page;
}

void PageSupply::Work() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      while (!stop_ && pages_.size() >= ahead()) wanted_.Wait(mutex_);
      if (stop_) return;
    }
    std::byte* const page = TouchedPage();
    const MutexLock lock(mutex_);
    if (page == nullptr) {
      failed_ = true;  // a caller that asks maps for itself, and is told
      ready_.WakeAll();
      return;
    }
    pages_.push_back(page);
    ready_.WakeOne();
  }
}

}  // namespace cairn::table

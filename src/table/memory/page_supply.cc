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

PageSupply::~PageSupply() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (std::byte* page : pages_) munmap(page, kPageBytes);
}

std::byte* PageSupply::Take() {
  std::unique_lock lock(mutex_);
  if (failed_) return nullptr;
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Work(); });
    return nullptr;
  }
  if (pages_.empty()) ready_.wait_for(lock, kPatience, [this] { return !pages_.empty() || failed_; });
  if (pages_.empty()) return nullptr;
  std::byte* const page = pages_.back();
  pages_.pop_back();
  ++taken_;
  wanted_.notify_one();
  return page;
}

void PageSupply::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return stop_ || pages_.size() < ahead(); });
    if (stop_) return;
    lock.unlock();
    std::byte* page = nullptr;
    try {
      page = MapHugePages(kPageBytes);
      for (size_t at = 0; at < kPageBytes; at += kSmallPage)
        *static_cast<volatile std::byte*>(page + at) = std::byte{0};
    } catch (const std::bad_alloc&) {
    }
    lock.lock();
    if (page == nullptr) {
      failed_ = true;  // who asks maps for himself, and is told
      ready_.notify_all();
      return;
    }
    pages_.push_back(page);
    ready_.notify_one();
  }
}

}  // namespace cairn::table

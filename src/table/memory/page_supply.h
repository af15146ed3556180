// Huge pages that are in memory before an arena needs them. The first touch of 2 MiB is zeroing by the
// system (0.2 ms), and in a virtual machine whose host has not given that memory yet much more: 4.6 ms
// in the median, up to 11, on the machine where it was measured: a host with small pages is asked 512
// times. A shard's thread must not stand still for that, so a thread of this class does it.
//
// Any number of arenas may share one; any thread may call Take. The thread begins with the first call
// and sleeps while enough pages lie ready.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace cairn::table {

class PageSupply {
 public:
  static constexpr size_t kPageBytes = size_t{2} << 20;
  static constexpr size_t kAhead = 4;  // pages that lie ready, fewer at the beginning

  PageSupply() = default;
  PageSupply(const PageSupply&) = delete;
  PageSupply& operator=(const PageSupply&) = delete;
  // Pages that were taken stay as they are.
  ~PageSupply();

  // A page, touched and aligned, which is the caller's to munmap. Null if none is ready within a few
  // milliseconds (and at the first call): then the caller does with small pages for a while.
  std::byte* Take();

 private:
  void Work();
  // A small cluster has little touched in vain.
  size_t ahead() const CAIRN_REQUIRES(mutex_) { return std::min(kAhead, 1 + taken_ / 4); }

  Mutex mutex_;
  Condition wanted_, ready_;
  std::vector<std::byte*> pages_ CAIRN_GUARDED_BY(mutex_);
  size_t taken_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool stop_ CAIRN_GUARDED_BY(mutex_) = false;
  bool failed_ CAIRN_GUARDED_BY(mutex_) = false;  // the system gives no more
  std::thread thread_;  // begun under mutex_, joined when nobody calls Take any more
};

// `bytes` from the system, aligned to a huge page; huge pages where there are
// any. Nothing of it is touched. Throws std::bad_alloc.
std::byte* MapHugePages(size_t bytes);

}  // namespace cairn::table

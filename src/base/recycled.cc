#include "base/recycled.h"

#include <pthread.h>

#include <array>
#include <bit>
#include <cstdint>
#include <new>

#include "base/mutex.h"

namespace cairn {
namespace {

constexpr size_t kSmallestBlock = 64;
constexpr size_t kClasses = std::bit_width(kMostRecycledBytes / kSmallestBlock);
// Blocks of these sizes are kept by threads too.
constexpr size_t kMostOfThread = 8192;
constexpr size_t kThreadClasses = std::bit_width(kMostOfThread / kSmallestBlock);
constexpr uint32_t kExchanged = 16;  // blocks at a time; a thread keeps twice as many at most

// A free block: it lies in its own memory.
struct Free {
  Free* next = nullptr;
};

struct List {
  Free* first = nullptr;
  uint32_t count = 0;

  void Put(Free* block) {
    block->next = first;
    first = block;
    ++count;
  }
  Free* Take() {
    Free* const block = first;
    if (block == nullptr) return nullptr;
    first = block->next;
    --count;
    return block;
  }
};

constexpr size_t ClassOf(size_t bytes) {
  return bytes <= kSmallestBlock ? 0 : static_cast<size_t>(std::bit_width((bytes - 1) / kSmallestBlock));
}
constexpr size_t BytesOf(size_t size_class) { return kSmallestBlock << size_class; }
static_assert(ClassOf(64) == 0 && ClassOf(65) == 1 && ClassOf(128) == 1 && ClassOf(129) == 2);
static_assert(ClassOf(kMostRecycledBytes) == kClasses - 1);
static_assert(BytesOf(kClasses - 1) == kMostRecycledBytes);

class SharedLists {
 public:
  // At most `count` blocks go into `to`; none if none are kept.
  void Take(size_t size_class, uint32_t count, List& to) {
    MutexLock lock(mutex_);
    List& from = lists_[size_class];
    for (; count > 0 && from.first != nullptr; --count) {
      to.Put(from.Take());
      kept_ -= BytesOf(size_class);
    }
  }
  void Give(size_t size_class, uint32_t count, List& from) noexcept {
    List surplus;
    {
      MutexLock lock(mutex_);
      for (; count > 0 && from.first != nullptr; --count) {
        Free* const block = from.Take();
        if (kept_ + BytesOf(size_class) > kMostKeptBytes) {
          surplus.Put(block);
          continue;
        }
        lists_[size_class].Put(block);
        kept_ += BytesOf(size_class);
      }
    }
    while (Free* block = surplus.Take()) ::operator delete(block);
  }
  size_t kept() {
    MutexLock lock(mutex_);
    return kept_;
  }
  void Lock() CAIRN_ACQUIRE(mutex_) { mutex_.Lock(); }
  void Unlock() CAIRN_RELEASE(mutex_) { mutex_.Unlock(); }

 private:
  Mutex mutex_;
  std::array<List, kClasses> lists_ CAIRN_GUARDED_BY(mutex_){};
  size_t kept_ CAIRN_GUARDED_BY(mutex_) = 0;
};

SharedLists& Shared();
// The system calls these in pairs, which the analysis can't know.
void LockForFork() CAIRN_NO_THREAD_SAFETY_ANALYSIS { Shared().Lock(); }
void UnlockAfterFork() CAIRN_NO_THREAD_SAFETY_ANALYSIS { Shared().Unlock(); }

// Never destroyed: objects of static life may give blocks back after everything else has ended. A child
// process must not find it locked by a thread that it does not have.
SharedLists& Shared() {
  static SharedLists& lists = []() -> SharedLists& {
    auto* const made = new SharedLists;
    pthread_atfork(LockForFork, UnlockAfterFork, UnlockAfterFork);
    return *made;
  }();
  return lists;
}

// Not yet, or no longer: a thread's last objects may die after its lists have.
struct ThreadLists;
thread_local ThreadLists* of_thread = nullptr;
thread_local bool thread_ended = false;

struct ThreadLists {
  std::array<List, kThreadClasses> lists{};
  ThreadLists() { of_thread = this; }
  ~ThreadLists() {
    of_thread = nullptr;
    thread_ended = true;
    for (size_t c = 0; c < kThreadClasses; ++c) Shared().Give(c, lists[c].count, lists[c]);
  }
};

ThreadLists* BeginThread() {
  if (thread_ended) return nullptr;
  thread_local ThreadLists lists;
  return &lists;
}

List* ListOfThread(size_t size_class) {
  if (size_class >= kThreadClasses) return nullptr;
  ThreadLists* const lists = of_thread != nullptr ? of_thread : BeginThread();
  return lists == nullptr ? nullptr : &lists->lists[size_class];
}

}  // namespace

void* TakeBlock(size_t bytes) {
  if (!kRecycles || bytes > kMostRecycledBytes) return ::operator new(bytes);
  const size_t size_class = ClassOf(bytes);
  List* const mine = ListOfThread(size_class);
  Free* block = nullptr;
  if (mine != nullptr) {
    if (mine->first == nullptr) Shared().Take(size_class, kExchanged, *mine);
    block = mine->Take();
  } else {
    List one;
    Shared().Take(size_class, 1, one);
    block = one.Take();
  }
  return block != nullptr ? block : ::operator new(BytesOf(size_class));
}

void GiveBlock(void* block, size_t bytes) noexcept {
  if (block == nullptr) return;
  if (!kRecycles || bytes > kMostRecycledBytes) return ::operator delete(block);
  const size_t size_class = ClassOf(bytes);
  Free* const free = new (block) Free;
  if (List* const mine = ListOfThread(size_class); mine != nullptr) {
    mine->Put(free);
    if (mine->count > 2 * kExchanged) Shared().Give(size_class, kExchanged, *mine);
    return;
  }
  List one;
  one.Put(free);
  Shared().Give(size_class, 1, one);
}

size_t SharedBlockBytes() { return Shared().kept(); }

}  // namespace cairn

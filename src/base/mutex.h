// A mutex that clang's thread-safety analysis understands: script/check --only clang fails where a member
// that is CAIRN_GUARDED_BY a mutex is touched without it. libstdc++'s own mutex has no such annotations.
//
//   Mutex mutex_;
//   std::deque<Task> tasks_ CAIRN_GUARDED_BY(mutex_);
//   Condition added_;
//
//   MutexLock lock(mutex_);
//   while (tasks_.empty()) added_.Wait(mutex_);
//
// Other compilers see a std::mutex and nothing else.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define CAIRN_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define CAIRN_THREAD_ANNOTATION(x)
#endif
#define CAIRN_CAPABILITY(name) CAIRN_THREAD_ANNOTATION(capability(name))
#define CAIRN_SCOPED_CAPABILITY CAIRN_THREAD_ANNOTATION(scoped_lockable)
#define CAIRN_GUARDED_BY(mutex) CAIRN_THREAD_ANNOTATION(guarded_by(mutex))
#define CAIRN_REQUIRES(...) CAIRN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define CAIRN_EXCLUDES(...) CAIRN_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define CAIRN_ACQUIRE(...) CAIRN_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define CAIRN_TRY_ACQUIRE(...) CAIRN_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define CAIRN_RELEASE(...) CAIRN_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define CAIRN_ASSERT_CAPABILITY(...) CAIRN_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
// For a lock whose owner the analysis can't follow. Say why where it is used.
#define CAIRN_NO_THREAD_SAFETY_ANALYSIS CAIRN_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace cairn {

class CAIRN_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() CAIRN_ACQUIRE() { mutex_.lock(); }
  bool TryLock() CAIRN_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() CAIRN_RELEASE() { mutex_.unlock(); }
  // This thread holds it, in a way that the analysis can't follow. Checks nothing when it runs.
  void AssertHeld() const CAIRN_ASSERT_CAPABILITY() {}

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex until the end of its block.
class CAIRN_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CAIRN_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() CAIRN_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes threads that wait for a change of what a mutex guards. A wait may end without a reason: look again.
class Condition {
 public:
  using Clock = std::chrono::steady_clock;

  void Wait(Mutex& mutex) CAIRN_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // False: the time has come.
  bool WaitUntil(Mutex& mutex, Clock::time_point time) CAIRN_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool woken = changed_.wait_until(lock, time) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void WakeOne() { changed_.notify_one(); }
  void WakeAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace cairn

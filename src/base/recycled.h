// Small memory that is used again: what a request is made of (its frames, lists, map nodes, calls)
// goes to free lists and not to the heap, so that a warm request allocates nothing. Buffers of
// values are base/buffer.h's.
//
// Blocks come in powers of two. Each thread keeps a few of every size and exchanges them by the
// dozen with lists that all threads share, because much of a request is made on one thread and dies
// on another. What is kept is bounded: so many blocks by a thread, so many bytes by the shared
// lists; the rest, and what is larger than the largest size, is the heap's. Thread-safe.
//
// With a sanitizer everything is the heap's: it could not see the end of a recycled block.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <utility>
#include <vector>

namespace cairn {

inline constexpr size_t kMostRecycledBytes = size_t{1} << 20;  // of one block
inline constexpr size_t kMostKeptBytes = size_t{64} << 20;     // by the shared lists

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kRecycles = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
inline constexpr bool kRecycles = false;
#else
inline constexpr bool kRecycles = true;
#endif
#else
inline constexpr bool kRecycles = true;
#endif

// Aligned as operator new does it. Throws std::bad_alloc.
void* TakeBlock(size_t bytes);
// `bytes` as they were asked for.
void GiveBlock(void* block, size_t bytes) noexcept;
// What the shared lists keep now.
size_t SharedBlockBytes();

// For the standard library's containers and shared pointers. All are equal: what one allocated,
// another may free.
template <class T>
struct Recycled {
  using value_type = T;

  Recycled() = default;
  template <class U>
  Recycled(const Recycled<U>&) noexcept {}  // NOLINT: allocators convert

  T* allocate(size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (count > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(TakeBlock(count * sizeof(T)));
  }
  void deallocate(T* block, size_t count) noexcept { GiveBlock(block, count * sizeof(T)); }
  template <class U>
  bool operator==(const Recycled<U>&) const noexcept {
    return true;
  }
};

template <class T>
using RecycledVector = std::vector<T, Recycled<T>>;
template <class T>
using RecycledDeque = std::deque<T, Recycled<T>>;
template <class K, class V>
using RecycledMap = std::map<K, V, std::less<K>, Recycled<std::pair<const K, V>>>;
template <class K>
using RecycledSet = std::set<K, std::less<K>, Recycled<K>>;

template <class T, class... Arguments>
std::shared_ptr<T> MakeRecycled(Arguments&&... arguments) {
  return std::allocate_shared<T>(Recycled<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace cairn

// The memory of one side of a connection through shared memory: its words and its ring
// (docs/internals/wire-format.md, "Shared memory"). The owner writes it, the peer can only read it, and
// neither can change its size. Plain system calls; one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cairn/status.h"

namespace cairn::transport::shm {

inline constexpr size_t kWordsBytes = 4096;
inline constexpr size_t kMinRingBytes = size_t{64} << 10;
inline constexpr size_t kMaxRingBytes = size_t{16} << 20;
// 1 to 4 MB were the fastest; larger ones leave the cache.
inline constexpr size_t kRingBytes = size_t{2} << 20;

// Each word, or pair of words that change together, has cache lines of its own.
struct Words {
  alignas(128) std::atomic<uint64_t> written{0};
  alignas(128) std::atomic<uint64_t> taken{0};
  alignas(128) std::atomic<uint64_t> wants_data{0};
  std::atomic<uint64_t> wants_room{0};
};
static_assert(offsetof(Words, taken) == 128 && offsetof(Words, wants_data) == 256 &&
              offsetof(Words, wants_room) == 264 && sizeof(Words) <= kWordsBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A mapping, and the descriptor while it is needed. Move-only.
class Memory {
 public:
  // A new one, of zeros, mapped for writing and then sealed. kUnavailable where the system has none.
  static Result<Memory> Create(size_t ring_bytes);
  // The peer's: checks size, seals and kind, and maps it for reading. Takes `fd`, also on error.
  static Result<Memory> MapPeers(int fd, uint64_t ring_bytes);

  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  // Of a created one, to pass it on; -1 after CloseDescriptor. The mapping stays.
  int fd() const { return fd_; }
  void CloseDescriptor();
  size_t ring_bytes() const { return ring_bytes_; }
  // Written only by the owner of the memory: the peer's is mapped for reading, a store would crash.
  Words& words() const { return *reinterpret_cast<Words*>(base_); }
  std::byte* ring() const { return base_ + kWordsBytes; }

 private:
  Memory(int fd, std::byte* base, size_t ring_bytes) : fd_(fd), base_(base), ring_bytes_(ring_bytes) {}
  int fd_;
  std::byte* base_;
  size_t ring_bytes_;
};

bool IsRingSize(uint64_t bytes);

}  // namespace cairn::transport::shm

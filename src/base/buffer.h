// Byte buffers that are used again: first touch of fresh pages costs more than everything else a
// message does. A pool is shared by the threads of one node; a Buffer has one owner at a time and
// goes back to its pool when it dies, from whatever thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace cairn {

class BufferPool;

// Move-only, 64-byte aligned. Empty when default-constructed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t capacity() const { return capacity_; }
  // Requires size <= capacity(). Contents are kept.
  void Resize(size_t size);
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  friend class BufferPool;
  void Release();
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  std::shared_ptr<class BufferPoolState> pool_;
};

// Hands out buffers by size class (powers of two from 512 bytes; above 16 MiB, multiples of
// 2 MiB). Keeps at most `keep_bytes` of free ones. Thread-safe. Buffers may outlive their pool.
class BufferPool {
 public:
  static constexpr size_t kDefaultKeepBytes = size_t{256} << 20;
  explicit BufferPool(size_t keep_bytes = kDefaultKeepBytes);
  // Throws std::bad_alloc.
  Buffer Get(size_t size);
  // For sizes that a peer asks for. False if the system has no more; then *out is as it was.
  bool TryGet(size_t size, Buffer* out);
  // Bytes handed out by the system since the start (a warm path does not raise it).
  size_t allocated_bytes() const;

 private:
  std::shared_ptr<BufferPoolState> state_;
};

}  // namespace cairn

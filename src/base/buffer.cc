#include "base/buffer.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace cairn {
namespace {
constexpr size_t kAlignment = 64;
constexpr size_t kSmallest = 512;
constexpr size_t kLargestPower = size_t{16} << 20;
constexpr size_t kLargeStep = size_t{2} << 20;

size_t ClassSize(size_t size) {
  if (size <= kSmallest) return kSmallest;
  if (size <= kLargestPower) return std::bit_ceil(size);
  return (size + kLargeStep - 1) / kLargeStep * kLargeStep;
}
}  // namespace

class BufferPoolState {
 public:
  explicit BufferPoolState(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~BufferPoolState() { FreeKept(); }

  // Null if the system has no more.
  std::byte* Take(size_t size) {
    {
      MutexLock lock(mutex_);
      auto it = free_.find(size);
      if (it != free_.end() && !it->second.empty()) {
        std::byte* p = it->second.back();
        it->second.pop_back();
        kept_ -= size;
        return p;
      }
      allocated_ += size;
    }
    void* p = std::aligned_alloc(kAlignment, size);
    if (p == nullptr) {  // what is kept for later may be what is missing now
      FreeKept();
      p = std::aligned_alloc(kAlignment, size);
    }
    return static_cast<std::byte*>(p);
  }

  void GiveBack(std::byte* p, size_t size) {
    {
      MutexLock lock(mutex_);
      if (kept_ + size <= keep_bytes_) {
        free_[size].push_back(p);
        kept_ += size;
        return;
      }
    }
    std::free(p);
  }

  size_t allocated() {
    MutexLock lock(mutex_);
    return allocated_;
  }

 private:
  void FreeKept() {
    MutexLock lock(mutex_);
    for (auto& [size, list] : free_) {
      for (std::byte* p : list) std::free(p);
      list.clear();
    }
    kept_ = 0;
  }

  Mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> free_ CAIRN_GUARDED_BY(mutex_);
  size_t kept_ CAIRN_GUARDED_BY(mutex_) = 0;
  size_t allocated_ CAIRN_GUARDED_BY(mutex_) = 0;
  const size_t keep_bytes_;
};

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      pool_(std::move(other.pool_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    pool_ = std::move(other.pool_);
  }
  return *this;
}

Buffer::~Buffer() { Release(); }

void Buffer::Release() {
  if (data_ != nullptr) pool_->GiveBack(data_, capacity_);
  data_ = nullptr;
  size_ = capacity_ = 0;
  pool_.reset();
}

void Buffer::Resize(size_t size) {
  CAIRN_CHECK(size <= capacity_);
  size_ = size;
}

BufferPool::BufferPool(size_t keep_bytes) : state_(std::make_shared<BufferPoolState>(keep_bytes)) {}

Buffer BufferPool::Get(size_t size) {
  Buffer buffer;
  if (!TryGet(size, &buffer)) throw std::bad_alloc();
  return buffer;
}

bool BufferPool::TryGet(size_t size, Buffer* out) {
  Buffer buffer;
  const size_t capacity = ClassSize(size);
  buffer.data_ = state_->Take(capacity);
  if (buffer.data_ == nullptr) return false;
  buffer.capacity_ = capacity;
  buffer.size_ = size;
  buffer.pool_ = state_;
  *out = std::move(buffer);
  return true;
}

size_t BufferPool::allocated_bytes() const { return state_->allocated(); }

}  // namespace cairn

#include "transport/shm/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace cairn::transport::shm {
namespace {
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Status SystemError(const char* what) {
  return {Code::kUnavailable, std::string("shared memory: ") + what + ": " + std::strerror(errno)};
}

int NewMemfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create("cairn-shm", kFlags | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not know the flag; some later ones refuse a memfd without it.
  return fd >= 0 || errno != EINVAL ? fd : memfd_create("cairn-shm", kFlags);
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int Release() { return std::exchange(fd, -1); }
};

void* Map(int fd, size_t ring_bytes, int protection) {
  return mmap(nullptr, kWordsBytes + ring_bytes, protection, MAP_SHARED, fd, 0);
}
}  // namespace

bool IsRingSize(uint64_t bytes) {
  return bytes >= kMinRingBytes && bytes <= kMaxRingBytes && (bytes & (bytes - 1)) == 0;
}

Result<Memory> Memory::Create(size_t ring_bytes) {
  if (!IsRingSize(ring_bytes)) {
    return Status(Code::kInvalidArgument,
                  "a ring has a power of two of bytes, 65536 to 16777216, not " + std::to_string(ring_bytes));
  }
  Descriptor memfd{NewMemfd()};
  if (memfd.fd < 0) return SystemError("memfd_create");
  if (ftruncate(memfd.fd, static_cast<off_t>(kWordsBytes + ring_bytes)) != 0) return SystemError("ftruncate");
  void* base = Map(memfd.fd, ring_bytes, PROT_READ | PROT_WRITE);
  if (base == MAP_FAILED) return SystemError("mmap");
  new (base) Words;
  Memory memory(memfd.Release(), static_cast<std::byte*>(base), ring_bytes);
  // After mapping: our own mapping stays writable, later ones can't be.
  if (fcntl(memory.fd_, F_ADD_SEALS, kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return SystemError("sealing a memfd");
  }
  return memory;
}

Result<Memory> Memory::MapPeers(int fd, uint64_t ring_bytes) {
  Descriptor memfd{fd};
  if (!IsRingSize(ring_bytes)) {
    return Status(Code::kProtocol, "a peer's ring of " + std::to_string(ring_bytes) + " bytes");
  }
  struct stat stat{};
  struct statfs filesystem{};
  // A file on a disk or of huge pages could make a read fail with a signal.
  if (fstat(fd, &stat) != 0 || fstatfs(fd, &filesystem) != 0 || !S_ISREG(stat.st_mode) ||
      filesystem.f_type != TMPFS_MAGIC || stat.st_size != static_cast<off_t>(kWordsBytes + ring_bytes)) {
    return Status(Code::kProtocol, "a peer's descriptor is no memory of the size that it says");
  }
  // So could one that shrinks.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Status(Code::kProtocol, "a peer's memory is not sealed");
  }
  void* base = Map(fd, ring_bytes, PROT_READ);
  if (base == MAP_FAILED) return SystemError("mmap");
  return Memory(-1, static_cast<std::byte*>(base), ring_bytes);
}

Memory::Memory(Memory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      base_(std::exchange(other.base_, nullptr)),
      ring_bytes_(other.ring_bytes_) {}

Memory::~Memory() {
  CloseDescriptor();
  if (base_ != nullptr) munmap(base_, kWordsBytes + ring_bytes_);
}

void Memory::CloseDescriptor() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace cairn::transport::shm

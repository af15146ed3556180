// A connection's pipe between two loops: the descriptor, and the rings where it goes through shared
// memory. Move-only; closes what nobody took.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "transport/shm/ring_pair.h"

namespace cairn::transport {

struct DetachedPipe {
  DetachedPipe() = default;
  DetachedPipe(int descriptor, std::unique_ptr<shm::RingPair> through)
      : fd(descriptor), rings(std::move(through)) {}
  DetachedPipe(DetachedPipe&& other) noexcept
      : fd(std::exchange(other.fd, -1)), rings(std::move(other.rings)) {}
  DetachedPipe& operator=(DetachedPipe&&) = delete;
  ~DetachedPipe() {
    if (fd >= 0) ::close(fd);
  }
  int TakeDescriptor() { return std::exchange(fd, -1); }

  int fd = -1;
  std::unique_ptr<shm::RingPair> rings;  // null: a TCP socket. Else `fd` is the Unix socket beside it
};

}  // namespace cairn::transport

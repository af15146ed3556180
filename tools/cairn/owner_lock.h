// "The process that made this is alive", said by a lock on a file. The kernel drops the lock with
// the process, and unlike a process id it stays right where containers share a folder.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace cairn::tool {

class OwnerLock {
 public:
  OwnerLock() = default;
  OwnerLock(OwnerLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnerLock& operator=(OwnerLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnerLock();

  // Makes `path` (for its owner only) if it is not there, and locks it. Nothing if somebody else
  // holds it or it can't be made; errno says why.
  static std::optional<OwnerLock> Take(const std::string& path);
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Whether a living process holds the lock of `path`. What can't be looked at counts as held.
bool IsHeld(const std::string& path);

}  // namespace cairn::tool

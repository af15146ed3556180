#include "owner_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace cairn::tool {

OwnerLock::~OwnerLock() {
  if (fd_ >= 0) close(fd_);
}

std::optional<OwnerLock> OwnerLock::Take(const std::string& path) {
  OwnerLock lock;
  lock.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock.fd_ < 0) return std::nullopt;
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return lock;
}

bool IsHeld(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return true;
  const bool held = flock(fd, LOCK_EX | LOCK_NB) != 0;
  close(fd);
  return held;
}

}  // namespace cairn::tool

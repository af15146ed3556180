#include "scheduler/metastore/os_log_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace cairn::scheduler {
namespace {

// A compaction keeps the file near 1 MiB; anything of this size is not ours.
constexpr uint64_t kMaxLogFileBytes = uint64_t{1} << 30;

Status SystemError(const std::string& doing, const std::string& path, int error) {
  std::string text = "can't " + doing + " " + path + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) text += ": free some space, then start the scheduler again";
  if (error == EACCES || error == EPERM || error == EROFS)
    text += ": give the scheduler a state directory that it may write to";
  return {Code::kIo, text};
}

class OsLogFile final : public LogFile {
 public:
  OsLogFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~OsLogFile() override { ::close(fd_); }
  OsLogFile(const OsLogFile&) = delete;
  OsLogFile& operator=(const OsLogFile&) = delete;

  Status Append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return SystemError("write to", path_, n < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return Status::Ok();
  }
  Status Sync() override { return ::fdatasync(fd_) == 0 ? Status::Ok() : SystemError("sync", path_, errno); }
  Result<std::vector<std::byte>> ReadAll() override {
    struct stat info{};
    if (::fstat(fd_, &info) != 0) return SystemError("look at", path_, errno);
    if (!S_ISREG(info.st_mode)) return Status(Code::kIo, path_ + " is not a plain file: move it away");
    if (static_cast<uint64_t>(info.st_size) > kMaxLogFileBytes)
      return Status(Code::kIo, path_ + " has " + std::to_string(info.st_size) +
                                   " bytes, which is no scheduler's log: move it away");
    std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError("read", path_, errno);
      if (n == 0) return Status(Code::kIo, path_ + " became shorter while it was read");
      done += static_cast<size_t>(n);
    }
    return bytes;
  }

 private:
  const int fd_;
  const std::string path_;
};

class OsLogFiles final : public LogFiles {
 public:
  OsLogFiles(std::string directory, int fd) : directory_(std::move(directory)), fd_(fd) {}
  ~OsLogFiles() override { ::close(fd_); }
  OsLogFiles(const OsLogFiles&) = delete;
  OsLogFiles& operator=(const OsLogFiles&) = delete;

  Result<std::unique_ptr<LogFile>> Open(const std::string& name) override {
    const int fd = ::open(PathOf(name).c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return std::unique_ptr<LogFile>();
    if (fd < 0) return SystemError("open", PathOf(name), errno);
    return std::unique_ptr<LogFile>(std::make_unique<OsLogFile>(fd, PathOf(name)));
  }
  Result<std::unique_ptr<LogFile>> Create(const std::string& name) override {
    const int fd = ::open(PathOf(name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return SystemError("create", PathOf(name), errno);
    return std::unique_ptr<LogFile>(std::make_unique<OsLogFile>(fd, PathOf(name)));
  }
  Status Remove(const std::string& name) override {
    if (::unlink(PathOf(name).c_str()) == 0 || errno == ENOENT) return Status::Ok();
    return SystemError("remove the unfinished", PathOf(name), errno);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(PathOf(from).c_str(), PathOf(to).c_str()) == 0) return Status::Ok();
    return SystemError("rename " + PathOf(from) + " to", PathOf(to), errno);
  }
  Status Sync() override {
    return ::fsync(fd_) == 0 ? Status::Ok() : SystemError("sync the directory", directory_, errno);
  }
  std::string PathOf(const std::string& name) const override { return directory_ + "/" + name; }

 private:
  const std::string directory_;
  const int fd_;  // holds the lock
};

Status SyncDirectory(const std::filesystem::path& directory) {
  const std::string name = directory.empty() ? "." : directory.string();
  const int fd = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("open", name, errno);
  const int error = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  return error == 0 ? Status::Ok() : SystemError("sync", name, error);
}

// Makes the directory and those above it, each one durable in its parent.
Status MakeDirectories(const std::filesystem::path& directory) {
  std::error_code error;
  if (directory.empty() || std::filesystem::is_directory(directory, error)) return Status::Ok();
  if (Status status = MakeDirectories(directory.parent_path()); !status.ok()) return status;
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
    return SystemError("make the state directory", directory.string(), errno);
  return SyncDirectory(directory.parent_path());
}

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<std::unique_ptr<LogFiles>> OpenLogDirectory(const std::string& given) {
  if (given.empty()) return Status(Code::kInvalidArgument, "the state directory has no name");
  const std::string directory = WithoutTrailingSlash(given);
  if (Status status = MakeDirectories(directory); !status.ok()) return status;
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("open the state directory", directory, errno);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(fd);
    if (error == EWOULDBLOCK)
      return Status(Code::kUnavailable, "another scheduler uses the state directory " + directory +
                                            ": stop it, or give this one a directory of its own");
    return SystemError("lock the state directory", directory, error);
  }
  return std::unique_ptr<LogFiles>(std::make_unique<OsLogFiles>(directory, fd));
}

}  // namespace cairn::scheduler

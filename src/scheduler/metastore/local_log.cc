#include "scheduler/metastore/local_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "scheduler/metastore/log_records.h"

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

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return SystemError("write to", path, n < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status::Ok();
}

Result<std::vector<std::byte>> ReadAll(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return SystemError("look at", path, errno);
  if (!S_ISREG(info.st_mode)) return Status(Code::kIo, path + " is not a plain file: move it away");
  if (static_cast<uint64_t>(info.st_size) > kMaxLogFileBytes)
    return Status(Code::kIo, path + " has " + std::to_string(info.st_size) +
                                 " bytes, which is no scheduler's log: move it away");
  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("read", path, errno);
    if (n == 0) return Status(Code::kIo, path + " became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return bytes;
}

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

Result<std::unique_ptr<LocalLog>> LocalLog::Open(const std::string& given) {
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
  return std::unique_ptr<LocalLog>(new LocalLog(directory, fd));
}

LocalLog::LocalLog(std::string directory, int directory_fd)
    : directory_(std::move(directory)),
      path_(directory_ + "/scheduler.log"),
      aside_path_(directory_ + "/scheduler.log.new"),
      directory_fd_(directory_fd) {}

LocalLog::~LocalLog() {
  if (fd_ >= 0) ::close(fd_);
  ::close(directory_fd_);
}

Status LocalLog::Broken(Status error) {
  broken_ = error;
  return error;
}

Result<std::vector<std::vector<std::byte>>> LocalLog::Load() {
  std::vector<std::vector<std::byte>> records;
  if (::unlink(aside_path_.c_str()) != 0 && errno != ENOENT)
    return Broken(SystemError("remove the unfinished", aside_path_, errno));
  fd_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (fd_ < 0 && errno == ENOENT) return records;
  if (fd_ < 0) return Broken(SystemError("open", path_, errno));
  auto bytes = ReadAll(fd_, path_);
  if (!bytes.ok()) return Broken(bytes.status());
  auto log = ParseLog(*bytes);
  if (!log.ok())
    return Broken(
        Status(Code::kIo, path_ + ": " + log.status().message() +
                              ": put the file back from a copy, or, to give this job up, move it away "
                              "and start the job anew"));
  if (log->torn_bytes > 0) {
    if (::ftruncate(fd_, static_cast<off_t>(log->good_bytes)) != 0)
      return Broken(SystemError("cut the torn end off", path_, errno));
    if (::fdatasync(fd_) != 0) return Broken(SystemError("sync", path_, errno));
    torn_bytes_ = log->torn_bytes;
  }
  for (auto payload : log->payloads) records.emplace_back(payload.begin(), payload.end());
  return records;
}

Status LocalLog::Append(std::span<const std::byte> record) {
  // The first record goes in by a rename: so it can't be torn, and damage to it is seen as such.
  if (fd_ < 0 && broken_.ok()) return Replace(record);
  if (!broken_.ok()) return broken_;
  if (record.size() > kMaxLogRecordBytes)
    return Broken({Code::kResourceExhausted, "a record of " + std::to_string(record.size()) + " bytes for " +
                                                 path_ + " is over the limit of " +
                                                 std::to_string(kMaxLogRecordBytes)});
  if (Status status = WriteAll(fd_, EncodeLogRecord(record), path_); !status.ok()) return Broken(status);
  if (::fdatasync(fd_) != 0) return Broken(SystemError("sync", path_, errno));
  return Status::Ok();
}

Status LocalLog::WriteAside(std::span<const std::byte> record, int* fd) {
  *fd = ::open(aside_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (*fd < 0) return SystemError("create", aside_path_, errno);
  if (Status status = WriteAll(*fd, EncodeLogRecord(record), aside_path_); !status.ok()) return status;
  if (::fsync(*fd) != 0) return SystemError("sync", aside_path_, errno);
  if (::rename(aside_path_.c_str(), path_.c_str()) != 0)
    return SystemError("rename " + aside_path_ + " to", path_, errno);
  if (::fsync(directory_fd_) != 0) return SystemError("sync the directory", directory_, errno);
  return Status::Ok();
}

Status LocalLog::Replace(std::span<const std::byte> record) {
  if (!broken_.ok()) return broken_;
  if (record.size() > kMaxLogRecordBytes)
    return Broken({Code::kResourceExhausted, "a record of " + std::to_string(record.size()) + " bytes for " +
                                                 path_ + " is over the limit of " +
                                                 std::to_string(kMaxLogRecordBytes)});
  int fd = -1;
  if (Status status = WriteAside(record, &fd); !status.ok()) {
    if (fd >= 0) ::close(fd);
    return Broken(status);
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  return Status::Ok();
}

}  // namespace cairn::scheduler

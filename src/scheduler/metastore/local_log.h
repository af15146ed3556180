// A MetaStore in a directory: the file `scheduler.log` (log_records.h has its bytes). One
// scheduler at a time: the directory is locked while this lives. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "scheduler/metastore/metastore.h"

namespace cairn::scheduler {

class LocalLog final : public MetaStore {
 public:
  // Makes the directory where it is missing. kUnavailable: another scheduler uses it. Other errors
  // (kIo) name the path and what the system said.
  static Result<std::unique_ptr<LocalLog>> Open(const std::string& directory);
  ~LocalLog() override;
  LocalLog(const LocalLog&) = delete;
  LocalLog& operator=(const LocalLog&) = delete;

  // Cuts a torn tail off. Damage anywhere else is an error that says what to do.
  Result<std::vector<std::vector<std::byte>>> Load() override;
  // Once one of these has failed, all later ones do.
  Status Append(std::span<const std::byte> record) override;
  Status Replace(std::span<const std::byte> record) override;

  // Bytes of a torn append that Load cut off; for a line in the log.
  size_t torn_bytes() const { return torn_bytes_; }

 private:
  LocalLog(std::string directory, int directory_fd);
  Status WriteAside(std::span<const std::byte> record, int* fd);
  Status Broken(Status error);

  const std::string directory_, path_, aside_path_;
  const int directory_fd_;  // holds the lock
  int fd_ = -1;             // the log, once there is one
  size_t torn_bytes_ = 0;
  Status broken_;
};

}  // namespace cairn::scheduler

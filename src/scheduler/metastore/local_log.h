// A MetaStore in a directory: the file `scheduler.log` (log_records.h has its bytes). One
// scheduler at a time: the directory is locked while this lives. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "scheduler/metastore/log_files.h"
#include "scheduler/metastore/metastore.h"

namespace cairn::scheduler {

class LocalLog final : public MetaStore {
 public:
  // Makes the directory where it is missing. kUnavailable: another scheduler uses it. Other errors
  // (kIo) name the path and what the system said.
  static Result<std::unique_ptr<LocalLog>> Open(const std::string& directory);
  explicit LocalLog(std::unique_ptr<LogFiles> files) : files_(std::move(files)) {}

  // Leaves a torn tail out, and makes sure that what it returns is durable. Damage anywhere else is an
  // error that says what to do.
  Result<std::vector<std::vector<std::byte>>> Load() override;
  // Once one of these has failed, all later ones do.
  Status Append(std::span<const std::byte> record) override;
  Status Replace(std::span<const std::byte> record) override;
  Status Confirm() override { return broken_; }  // the directory is locked

  // Bytes of a torn append that Load left out; for a line in the log.
  size_t torn_bytes() const { return torn_bytes_; }

 private:
  Result<std::unique_ptr<LogFile>> WriteAside(std::span<const std::byte> bytes);
  Status StartOver(std::span<const std::byte> bytes);
  Status CheckSize(std::span<const std::byte> record) const;
  Status Broken(Status error);

  const std::unique_ptr<LogFiles> files_;
  std::unique_ptr<LogFile> log_;  // once there is one
  size_t torn_bytes_ = 0;
  Status broken_;
};

}  // namespace cairn::scheduler

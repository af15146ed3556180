#include "scheduler/metastore/local_log.h"

#include <utility>

#include "scheduler/metastore/log_records.h"
#include "scheduler/metastore/os_log_files.h"

namespace cairn::scheduler {
namespace {
constexpr char kName[] = "scheduler.log";
constexpr char kAsideName[] = "scheduler.log.new";
}  // namespace

Result<std::unique_ptr<LocalLog>> LocalLog::Open(const std::string& directory) {
  auto files = OpenLogDirectory(directory);
  if (!files.ok()) return files.status();
  return std::make_unique<LocalLog>(std::move(*files));
}

Status LocalLog::Broken(Status error) {
  broken_ = error;
  return error;
}

Result<std::vector<std::vector<std::byte>>> LocalLog::Load() {
  std::vector<std::vector<std::byte>> records;
  if (Status status = files_->Remove(kAsideName); !status.ok()) return Broken(status);
  auto file = files_->Open(kName);
  if (!file.ok()) return Broken(file.status());
  if (*file == nullptr) return records;
  auto bytes = (*file)->ReadAll();
  if (!bytes.ok()) return Broken(bytes.status());
  auto log = ParseLog(*bytes);
  if (!log.ok())
    return Broken(
        Status(Code::kIo, files_->PathOf(kName) + ": " + log.status().message() +
                              ": put the file back from a copy, or, to give this job up, move it away "
                              "and start the job anew"));
  torn_bytes_ = log->torn_bytes;
  for (auto payload : log->payloads) records.emplace_back(payload.begin(), payload.end());
  // A record may be here and not on the disk: the start before this one was killed before its sync was
  // over, or the sync has failed, in which case no later one would write it either. It counts from now
  // on, so everything is written once more.
  if (Status status = StartOver(std::span(*bytes).first(log->good_bytes)); !status.ok())
    return Broken(status);
  return records;
}

Status LocalLog::CheckSize(std::span<const std::byte> record) const {
  if (record.size() <= kMaxLogRecordBytes) return Status::Ok();
  return {Code::kResourceExhausted, "a record of " + std::to_string(record.size()) + " bytes for " +
                                        files_->PathOf(kName) + " is over the limit of " +
                                        std::to_string(kMaxLogRecordBytes)};
}

Status LocalLog::Append(std::span<const std::byte> record) {
  // The first record goes in by a rename: so it can't be torn, and damage to it is seen as such.
  if (log_ == nullptr && broken_.ok()) return Replace(record);
  if (!broken_.ok()) return broken_;
  if (Status status = CheckSize(record); !status.ok()) return Broken(status);
  if (Status status = log_->Append(EncodeLogRecord(record)); !status.ok()) return Broken(status);
  if (Status status = log_->Sync(); !status.ok()) return Broken(status);
  return Status::Ok();
}

Status LocalLog::Replace(std::span<const std::byte> record) {
  if (!broken_.ok()) return broken_;
  if (Status status = CheckSize(record); !status.ok()) return Broken(status);
  if (Status status = StartOver(EncodeLogRecord(record)); !status.ok()) return Broken(status);
  return Status::Ok();
}

Result<std::unique_ptr<LogFile>> LocalLog::WriteAside(std::span<const std::byte> bytes) {
  auto file = files_->Create(kAsideName);
  if (!file.ok()) return file;
  if (Status status = (*file)->Append(bytes); !status.ok()) return status;
  if (Status status = (*file)->Sync(); !status.ok()) return status;
  return file;
}

// The log is these bytes from now on; until then it is what it was.
Status LocalLog::StartOver(std::span<const std::byte> bytes) {
  auto file = WriteAside(bytes);
  if (!file.ok()) return file.status();
  if (Status status = files_->Rename(kAsideName, kName); !status.ok()) return status;
  if (Status status = files_->Sync(); !status.ok()) return status;
  log_ = std::move(*file);
  return Status::Ok();
}

}  // namespace cairn::scheduler

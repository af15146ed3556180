// A MetaStore that lasts as long as the process: for a scheduler without a state directory, and
// for tests, which hand its records to the next scheduler as if it had restarted.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "scheduler/metastore/metastore.h"

namespace cairn::scheduler {

class MemoryStore final : public MetaStore {
 public:
  using Records = std::vector<std::vector<std::byte>>;
  MemoryStore() = default;
  explicit MemoryStore(Records records) : records_(std::move(records)) {}

  Result<Records> Load() override { return records_; }
  Status Append(std::span<const std::byte> record) override {
    records_.emplace_back(record.begin(), record.end());
    return Status::Ok();
  }
  Status Replace(std::span<const std::byte> record) override {
    records_.clear();
    return Append(record);
  }
  Status Confirm() override { return Status::Ok(); }  // nobody else has it
  const Records& records() const { return records_; }

 private:
  Records records_;
};

}  // namespace cairn::scheduler

// The scheduler's log in the simulator: the real one (scheduler/metastore/local_log.h) on a disk in
// memory that outlives the process, loses power inside a write, and fails to sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "cairn/status.h"
#include "scheduler/metastore/local_log.h"
#include "scheduler/metastore/memory_disk.h"
#include "scheduler/metastore/metastore.h"

namespace cairn::sim {

class SimStore final : public scheduler::MetaStore {
 public:
  struct Hooks {
    std::function<scheduler::MemoryDisk::Fate(bool sync)> fate;
    std::function<void(scheduler::MemoryDisk::Left)> on_left;
    std::function<void()> dying;  // the power has failed under the process
    std::function<void(std::span<const std::byte>)> on_durable;
    std::function<void(const std::string&)> on_unreadable;
  };
  SimStore(uint64_t seed, Hooks hooks);

  // Of a new process: the power is back.
  Result<std::vector<std::vector<std::byte>>> Load() override;
  Status Append(std::span<const std::byte> record) override;
  Status Replace(std::span<const std::byte> record) override;
  Status Confirm() override { return log_->Confirm(); }
  bool dying() const { return disk_.down(); }  // from a power failure inside a write to the next Load
  // A write has failed, and no process has looked since at what became of it.
  bool uncertain() const { return uncertain_; }
  // Now and then, between two processes: what a failed sync has left in memory only is gone.
  void MayFailPower();

 private:
  void Tell(std::span<const std::byte> record);
  const Hooks hooks_;
  Random random_;
  scheduler::MemoryDisk disk_;
  std::unique_ptr<scheduler::LocalLog> log_;
  std::vector<std::byte> durable_;  // the last record that the world was told of
  bool uncertain_ = false;
};

}  // namespace cairn::sim

// The scheduler's disk in the simulator: records in memory that outlive the process, and the ways
// in which a process can die inside an append. Only whole records come back from Load; a torn one
// at the end is dropped, as the real log does by its checksums.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "cairn/status.h"
#include "scheduler/metastore/metastore.h"

namespace cairn::sim {

class SimStore final : public scheduler::MetaStore {
 public:
  enum class Fate {
    kFine,
    kLostThenCrash,     // the record never reaches the disk
    kTornThenCrash,     // half of it does
    kDurableThenCrash,  // all of it does, and nobody is told
  };
  struct Hooks {
    std::function<Fate()> fate;   // asked once per append
    std::function<void()> crash;  // the process is dying
    std::function<void(std::span<const std::byte>)> on_durable;
  };
  explicit SimStore(Hooks hooks) : hooks_(std::move(hooks)) {}

  Result<std::vector<std::vector<std::byte>>> Load() override;
  Status Append(std::span<const std::byte> record) override;
  Status Replace(std::span<const std::byte> record) override;
  bool dying() const { return dying_; }  // from a crash inside an append to the next Load

 private:
  Status Write(std::span<const std::byte> record, bool replace);
  Hooks hooks_;
  std::vector<std::vector<std::byte>> records_;
  bool dying_ = false;
};

}  // namespace cairn::sim

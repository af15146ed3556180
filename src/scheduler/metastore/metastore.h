// Where the scheduler keeps what it has decided. Append returns only when the record is durable;
// after a failed append the scheduler must stop (the record may or may not be there).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cairn/status.h"

namespace cairn::scheduler {

class MetaStore {
 public:
  virtual ~MetaStore() = default;
  // Every record ever appended (since the last Replace), in order. Called once, before Append.
  virtual Result<std::vector<std::vector<std::byte>>> Load() = 0;
  virtual Status Append(std::span<const std::byte> record) = 0;
  // Starts over with this one record, atomically (a compaction).
  virtual Status Replace(std::span<const std::byte> record) = 0;
  // Whether what was last loaded or appended is still the newest: nobody else writes. kUnavailable: that
  // can't be found out now. Any other error is like a failed append.
  virtual Status Confirm() = 0;
};

}  // namespace cairn::scheduler

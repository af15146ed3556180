// How much memory bodies that are being received may take: a peer that claims large frames on many
// connections, and sends nothing, must not use up a node's memory. A body counts from its header until it
// is whole. One for all connections that a node has accepted; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/memory_limits.h"
#include "base/mutex.h"

namespace cairn::transport {

struct ReceiptLimits {
  uint64_t per_peer = uint64_t{1} << 30;  // all connections of one address, or of one process on this host
  uint64_t in_all = UINT64_MAX;
};
// A quarter of what is left, and an eighth of it for each peer.
ReceiptLimits ReceiptLimitsFor(const MemoryLeft& left);

class ReceiptBudget {
 public:
  // Smaller bodies are not worth counting: a connection's own buffer is as large.
  static constexpr uint64_t kSmallBody = 64 * 1024;

  explicit ReceiptBudget(ReceiptLimits limits) : limits_(limits) {}

  // False: not now, others have to end first. One body may always be received: a peer that has none under
  // way gets one whatever its size, if the others leave room or there are none.
  bool Take(const std::string& peer, uint64_t bytes);
  // What was taken.
  void Give(const std::string& peer, uint64_t bytes);
  uint64_t taken() const;

 private:
  const ReceiptLimits limits_;
  mutable Mutex mutex_;
  std::map<std::string, uint64_t> by_peer_ CAIRN_GUARDED_BY(mutex_);
  uint64_t taken_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::transport

#include "transport/tcp/receipt_budget.h"

#include <algorithm>

#include "base/check.h"

namespace cairn::transport {
namespace {
constexpr uint64_t kLeastInAll = uint64_t{64} << 20;
constexpr uint64_t kLeastPerPeer = uint64_t{32} << 20;
constexpr size_t kPeersKept = 1024;  // with nothing under way: most come again, and need no memory then
}  // namespace

ReceiptLimits ReceiptLimitsFor(const MemoryLeft& left) {
  ReceiptLimits limits;
  if (left.kind == MemoryKind::kUnknown) return limits;
  limits.in_all = std::max(left.bytes / 4, kLeastInAll);
  limits.per_peer = std::clamp(left.bytes / 8, kLeastPerPeer, limits.per_peer);
  return limits;
}

bool ReceiptBudget::Take(const std::string& peer, uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (taken_ > 0 && taken_ + bytes > limits_.in_all) return false;
  const auto its = by_peer_.try_emplace(peer, 0).first;
  if (its->second > 0 && its->second + bytes > limits_.per_peer) return false;
  its->second += bytes;
  taken_ += bytes;
  return true;
}

void ReceiptBudget::Give(const std::string& peer, uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto its = by_peer_.find(peer);
  CAIRN_CHECK(its != by_peer_.end() && its->second >= bytes && taken_ >= bytes);
  taken_ -= bytes;
  its->second -= bytes;
  if (its->second == 0 && by_peer_.size() > kPeersKept) by_peer_.erase(its);
}

uint64_t ReceiptBudget::taken() const {
  const MutexLock lock(mutex_);
  return taken_;
}

}  // namespace cairn::transport

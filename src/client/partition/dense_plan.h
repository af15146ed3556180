// Where the elements of a dense table lie: for every shard thread its slots, for every slot its
// runs. A pure function of table and slot map, made once and used by every step of a model.
// Any thread may read it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class DensePlan {
 public:
  struct Slot {
    uint32_t slot = 0;
    uint32_t first_run = 0, end_run = 0;
    uint64_t elements = 0;  // never 0: other slots are not listed
  };
  struct Thread {
    uint16_t server = 0, thread = 0;
    uint32_t first = 0, end = 0;  // its slots
  };

  // Requires a state that CheckState (client/links/check_state.h) has said yes to, with slots.
  DensePlan(const wire::TableInfo& table, const wire::ClusterState& state);

  // It was made for this very table and slot map. Most new states have the map of the last one.
  bool Fits(const wire::TableInfo& table, const wire::ClusterState& state) const {
    if (table_ != table.id || size_ != table.spec.size) return false;
    return version_.load(std::memory_order_relaxed) == state.version.value || SameMap(state);
  }
  // In the order (server, thread); the slots of each ascend. Some may have no slots of the table.
  std::span<const Thread> threads() const { return threads_; }
  std::span<const Slot> SlotsOf(const Thread& thread) const {
    return std::span<const Slot>(slots_).subspan(thread.first, thread.end - thread.first);
  }
  std::span<const wire::DenseRun> RunsOf(const Slot& slot) const {
    const std::span<const wire::DenseRun> all(runs_);
    return all.subspan(slot.first_run, slot.end_run - slot.first_run);
  }

 private:
  bool SameMap(const wire::ClusterState& state) const;

  TableId table_;
  mutable std::atomic<uint64_t> version_;  // of a state with the same map, last compared
  uint64_t size_ = 0;
  std::vector<std::pair<uint16_t, uint16_t>> owners_;  // of each slot: server, thread
  std::vector<Thread> threads_;
  std::vector<Slot> slots_;
  std::vector<wire::DenseRun> runs_;
};

// The newest plan of one table. Thread-safe.
class DensePlanCache {
 public:
  std::shared_ptr<const DensePlan> Get(const wire::TableInfo& table, const wire::ClusterState& state) {
    MutexLock lock(mutex_);
    if (plan_ == nullptr || !plan_->Fits(table, state)) {
      plan_ = std::make_shared<const DensePlan>(table, state);
    }
    return plan_;
  }

 private:
  Mutex mutex_;
  std::shared_ptr<const DensePlan> plan_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::client

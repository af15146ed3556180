#include "client/partition/dense_plan.h"

#include "client/partition/routes.h"

namespace cairn::client {

DensePlan::DensePlan(const wire::TableInfo& table, const wire::ClusterState& state)
    : table_(table.id), version_(state.version.value), size_(table.spec.size) {
  const auto runs = wire::RunsBySlot(
      wire::DenseLayout::Of(table.id, table.spec.size, static_cast<uint32_t>(state.slots.size())));
  Routes routes;
  routes.Build(state);
  owners_.reserve(state.slots.size());
  for (const wire::SlotOwner& owner : state.slots) owners_.emplace_back(owner.server, owner.thread);
  threads_.reserve(routes.threads().size());
  for (const Routes::Thread& thread : routes.threads()) {
    const auto first = static_cast<uint32_t>(slots_.size());
    for (uint32_t slot : routes.SlotsOf(thread)) {
      Slot entry{slot, static_cast<uint32_t>(runs_.size()), 0, 0};
      for (const wire::DenseRun& run : runs[slot]) entry.elements += run.count;
      if (entry.elements == 0) continue;
      runs_.insert(runs_.end(), runs[slot].begin(), runs[slot].end());
      entry.end_run = static_cast<uint32_t>(runs_.size());
      slots_.push_back(entry);
    }
    threads_.push_back({thread.server, thread.thread, first, static_cast<uint32_t>(slots_.size())});
  }
}

bool DensePlan::SameMap(const wire::ClusterState& state) const {
  if (owners_.size() != state.slots.size()) return false;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] != std::pair(state.slots[i].server, state.slots[i].thread)) return false;
  }
  version_.store(state.version.value, std::memory_order_relaxed);
  return true;
}

}  // namespace cairn::client

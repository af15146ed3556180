#include "client/partition/slot_grouping.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "wire/cluster_state.h"

namespace cairn::client {

void SlotGrouping::Build(std::span<const RowKey> keys, uint32_t slot_count, const Routes& routes) {
  const std::span<const uint32_t> slots = routes.slots();
  rank_of_slot_.resize(slot_count);
  for (uint32_t i = 0; i < slots.size(); ++i) rank_of_slot_[slots[i]] = i;
  starts_.assign(slots.size() + 1, 0);
  group_of_key_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t group = rank_of_slot_[wire::SlotOfKey(keys[i], slot_count).value];
    group_of_key_[i] = group;
    ++starts_[group + 1];
  }
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  next_.assign(starts_.begin(), starts_.end());
  keys_.resize(keys.size());
  places_.resize(keys.size());
  for (uint32_t i = 0; i < keys.size(); ++i) {
    const uint32_t at = next_[group_of_key_[i]]++;
    keys_[at] = keys[i];
    places_[at] = i;
  }
}

void SeenKeys::Start(uint32_t count) {
  const size_t wanted = std::bit_ceil(std::max<size_t>(size_t{count} * 4, 64));
  if (cells_.size() < wanted || stamp_ == std::numeric_limits<uint32_t>::max()) {
    cells_.assign(std::max(wanted, cells_.size()), Cell{});
    stamp_ = 0;
  }
  mask_ = static_cast<uint32_t>(wanted - 1);
  ++stamp_;
}

}  // namespace cairn::client

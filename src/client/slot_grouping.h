// Keys of a request, grouped by slot and, for pushes, without repetitions: one pass counts, one
// scatters, and each slot's group is then small enough for a hash table in the nearest cache.
// Scratch memory is kept for the next request. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "cairn/types.h"
#include "client/routes.h"

namespace cairn::client {

class SlotGrouping {
 public:
  // Groups in the order of routes.slots(); within one the order of the array is kept.
  void Build(std::span<const RowKey> keys, uint32_t slot_count, const Routes& routes);

  // Of the i-th slot of routes.slots().
  uint32_t first(size_t i) const { return starts_[i]; }
  uint32_t count(size_t i) const { return starts_[i + 1] - starts_[i]; }
  // All keys and, for each, where it stood in the caller's array, group after group.
  std::span<RowKey> keys() { return keys_; }
  std::span<const uint32_t> places() const { return places_; }

 private:
  std::vector<uint32_t> rank_of_slot_;  // slot → its place in routes.slots()
  std::vector<uint32_t> group_of_key_;
  std::vector<uint32_t> starts_;
  std::vector<uint32_t> next_;
  std::vector<RowKey> keys_;
  std::vector<uint32_t> places_;
};

// Which of a group's keys have been seen: open addressing, emptied by a new stamp.
class SeenKeys {
 public:
  // Makes room for `count` keys and forgets all.
  void Start(uint32_t count);
  // The number given to `key`: `next` if it is new, otherwise what it was given before.
  uint32_t Insert(RowKey key, uint32_t next) {
    // The top bits of the mix chose the slot; the low ones are still spread.
    for (uint32_t at = static_cast<uint32_t>(Mix64(key)) & mask_;; at = (at + 1) & mask_) {
      Cell& cell = cells_[at];
      if (cell.stamp != stamp_) {
        cell = {key, stamp_, next};
        return next;
      }
      if (cell.key == key) return cell.number;
    }
  }

 private:
  struct Cell {
    RowKey key = 0;
    uint32_t stamp = 0;
    uint32_t number = 0;
  };
  std::vector<Cell> cells_;
  uint32_t mask_ = 0;
  uint32_t stamp_ = 0;
};

}  // namespace cairn::client

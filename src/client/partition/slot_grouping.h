// Keys of a request, grouped by slot and, for pushes, without repetitions: one pass counts, one
// scatters, and each slot's group is then small enough for a hash table in the nearest cache.
// Scratch memory is kept for the next request. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "cairn/types.h"
#include "client/partition/routes.h"

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
  // The other way round: for each key of the caller's array its group. The n-th key of a group
  // there is its n-th here.
  std::span<const uint32_t> group_of_key() const { return group_of_key_; }
  void CopyFirsts(std::vector<uint32_t>& firsts) const { firsts.assign(starts_.begin(), starts_.end()); }

 private:
  std::vector<uint32_t> rank_of_slot_;  // slot → its place in routes.slots()
  std::vector<uint32_t> group_of_key_;
  std::vector<uint32_t> starts_;
  std::vector<uint32_t> next_;
  std::vector<RowKey> keys_;
  std::vector<uint32_t> places_;
};

// Which of a group's keys have been seen: open addressing, emptied by a new stamp. Cells hold no
// keys (they lie in the rows), and a quarter of them is used at most: small, and few collisions.
class SeenKeys {
 public:
  // Makes room for `count` keys and forgets all.
  void Start(uint32_t count);
  // The row of `key`: `next` if it is new, otherwise what it was given before. keys[row] must be the
  // key of each row given since Start.
  uint32_t Insert(RowKey key, const RowKey* keys, uint32_t next) {
    // The top bits of the mix chose the slot; the low ones are still spread.
    for (uint32_t at = static_cast<uint32_t>(Mix64(key)) & mask_;; at = (at + 1) & mask_) {
      Cell& cell = cells_[at];
      if (cell.stamp != stamp_) {
        cell = {stamp_, next};
        return next;
      }
      if (keys[cell.row] == key) return cell.row;
    }
  }

 private:
  struct Cell {
    uint32_t stamp = 0;
    uint32_t row = 0;
  };
  std::vector<Cell> cells_;
  uint32_t mask_ = 0;
  uint32_t stamp_ = 0;
};

}  // namespace cairn::client

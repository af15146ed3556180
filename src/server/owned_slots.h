// The slots of one shard: epoch, place in the order of operations, sequence numbers. A slot has
// a local number, its place in every array that the shard keeps per slot.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "server/sequence_numbers.h"
#include "wire/cluster_state.h"

namespace cairn::server {

struct OwnedSlot {
  OwnedSlot(SlotId slot, uint32_t refusals_kept) : id(slot), numbers(refusals_kept) {}
  SlotId id;
  bool owned = true;  // false: it has moved away; its local number stays empty
  uint64_t epoch = 1;
  uint64_t index = 0;  // of the last operation in this slot's order
  StateVersion since;  // frames made under an older state are refused
  SequenceNumbers numbers;

  Position position() const { return Position::Of(epoch, index); }
  Position NextPosition() { return Position::Of(epoch, ++index); }
};

class OwnedSlots {
 public:
  static constexpr uint32_t kNotHere = ~uint32_t{0};

  // Takes over which slots (server, thread) owns. Slots that were here keep their local number.
  // True if a slot has moved away.
  bool Update(const wire::ClusterState& state, uint32_t server, uint32_t thread, uint32_t refusals_kept);
  // kNotHere where this shard does not own the slot.
  uint32_t LocalOf(uint32_t slot) const { return slot < local_of_.size() ? local_of_[slot] : kNotHere; }
  OwnedSlot& operator[](uint32_t local) { return slots_[local]; }
  const OwnedSlot& operator[](uint32_t local) const { return slots_[local]; }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }           // local numbers so far
  uint32_t slot_count() const { return static_cast<uint32_t>(local_of_.size()); }  // of the cluster
  void Forget(ClientIndex client) {
    for (OwnedSlot& slot : slots_) slot.numbers.Forget(client);
  }

 private:
  std::vector<uint32_t> local_of_;  // by slot id
  std::vector<OwnedSlot> slots_;
};

}  // namespace cairn::server

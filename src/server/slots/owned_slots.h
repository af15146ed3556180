// The slots of one shard, as their primary or as a backup: role, epoch, place in the order of operations,
// and sequence numbers (docs/internals/consistency.md, rules 40 to 45). What replication knows of them is in
// replication/. A slot has a local number, its place in every array that the shard keeps per slot, for as
// long as the shard lives.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/planted.h"
#include "server/slots/records.h"
#include "server/slots/sequence_numbers.h"
#include "server/slots/slot_work.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn::server {

struct OwnedSlot {
  using Role = SlotRole;
  OwnedSlot(SlotId slot, uint32_t refusals_kept) : id(slot), numbers(refusals_kept) {}
  SlotId id;
  Role role = Role::kNone;
  bool owned = false;  // its primary, not handing it over, and not ruined: takes requests
  // A primary that can't go on. The scheduler hears of it and ends the job.
  enum class Ruin : uint8_t { kNone, kNotWhole, kSpent };
  Ruin ruin = Ruin::kNone;
  bool told_nearly_spent = false;
  StateVersion since;  // frames made under an older state are refused
  SequenceNumbers numbers;

  // As the primary.
  bool enough = true;  // owners in sync, for min_in_sync
  bool handing_over = false;
  SlotWork work;

  bool present() const { return role != Role::kNone; }
  // Also while it is being handed over: until then nobody else answers for it, so what is said of all
  // slots here has to wait for it.
  bool primary() const { return role == Role::kPrimary; }

  // The epoch of its primary, as the newest state has it.
  uint64_t epoch() const { return epoch_; }
  void TakeEpoch(uint64_t epoch) {
    CAIRN_CHECK(epoch >= epoch_ || CAIRN_ANY_BUG);  // no scheduler of this job takes one back
    epoch_ = epoch;
  }
  // The place of the last operation applied. As the primary each gets the next one; as a backup it is what
  // the primary says, of each operation and of a copy.
  uint64_t index() const { return index_; }
  Position position() const { return Position::Of(epoch_, index_); }
  Position NextPosition() {
    CAIRN_CHECK(owned && primary() && index_ < Position::kMaxIndex);
    return Position::Of(epoch_, ++index_);
  }
  void ApplyNext(uint64_t index) {
    CAIRN_CHECK(role == Role::kBackup && (index == index_ + 1 || CAIRN_ANY_BUG));
    index_ = index;
  }
  void ForgetIndex() { index_ = 0; }
  void StartAt(uint64_t index) {
    CAIRN_CHECK(role == Role::kBackup && index_ == 0);
    index_ = index;
  }

 private:
  uint64_t epoch_ = 1;
  uint64_t index_ = 0;
};

class OwnedSlots {
 public:
  static constexpr uint32_t kNotHere = ~uint32_t{0};

  // One local number per slot of the cluster that was ever here; made on demand.
  uint32_t Place(uint32_t slot, uint32_t refusals_kept);
  void SetCount(size_t slots) {
    if (local_of_.size() < slots) local_of_.resize(slots, kNotHere);
  }
  // kNotHere where this shard does not take requests for the slot.
  uint32_t LocalOf(uint32_t slot) const {
    const uint32_t local = LocalOfAny(slot);
    return local != kNotHere && slots_[local].owned ? local : kNotHere;
  }
  // In any role, or in none any more.
  uint32_t LocalOfAny(uint32_t slot) const { return slot < local_of_.size() ? local_of_[slot] : kNotHere; }
  OwnedSlot::Role RoleOf(SlotId slot) const {
    const uint32_t local = LocalOfAny(slot.value);
    return local == kNotHere ? OwnedSlot::Role::kNone : slots_[local].role;
  }
  OwnedSlot& operator[](uint32_t local) { return slots_[local]; }
  const OwnedSlot& operator[](uint32_t local) const { return slots_[local]; }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }           // local numbers so far
  uint32_t slot_count() const { return static_cast<uint32_t>(local_of_.size()); }  // of the cluster
  // Of the slots that this shard is the primary of, by the newest state (shard/slot_roles.cc counts).
  struct Totals {
    uint32_t handing_over = 0;
    bool short_of_owners = false;  // some slot has fewer owners in sync than min_in_sync
    bool came = false;             // with that state this shard became the primary of a slot
  };
  const Totals& totals() const { return totals_; }
  void SetTotals(const Totals& totals) { totals_ = totals; }
  // Ok if this shard takes requests for all of these slots, made under this state.
  Status CheckOwner(std::span<const wire::SlotEntry> entries, uint64_t state_version,
                    const std::string& name) const;
  void Forget(ClientIndex client) {
    for (OwnedSlot& slot : slots_) slot.numbers.Forget(client);
  }

 private:
  std::vector<uint32_t> local_of_;  // by slot id
  std::deque<OwnedSlot> slots_;
  Totals totals_;
};

}  // namespace cairn::server

// The slots of one shard, as their primary or as a backup: epoch, place in the order of operations,
// sequence numbers, and what replication knows of them (docs/internals/consistency.md, rules 40 to 45). A slot
// has a local number, its place in every array that the shard keeps per slot, for as long as the
// shard lives.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "base/check.h"
#include "base/ids.h"
#include "base/planted.h"
#include "server/push/sequence_numbers.h"
#include "server/shard/shard.h"
#include "server/shard/slot_work.h"
#include "wire/cluster_state.h"

namespace cairn::server {

struct BackupStream;  // server/replication/backup_streams.h

// One backup, as the primary sees it.
struct SlotBackup {
  enum class Phase : uint8_t {
    kWaiting,  // for its turn to be copied to
    kCopying,  // the copy is under way; operations go behind it
    kWaited,   // the copy is confirmed: answers wait for this backup too
    kInSync,   // and the state says so
  };
  uint16_t server = 0;  // index
  StateVersion added;
  BackupStream* stream = nullptr;
  Phase phase = Phase::kWaiting;
  int64_t since_us = 0;          // when this primary heard of it
  uint64_t shipped = 0;          // the stream's frame with the last thing sent for this slot
  uint64_t copy_end = 0;         // kCopying: the frame that ends the copy
  uint64_t confirmed_index = 0;  // known only where several backups make it matter
  uint64_t first_shipped = 0;    // the first frame with anything for this backup
  bool caught_up = false;        // kWaited: all that was shipped before is confirmed by all
  std::vector<std::pair<BackupStream*, uint64_t>> caught_up_marks;  // what that was
  bool compared = false;         // as the heir, with what the primary has
  bool broken = false;           // it refuses what it is sent, under our own epoch
  bool waited() const { return phase >= (CAIRN_BUG(kCaughtUpNotWaited) ? Phase::kInSync : Phase::kWaited); }
  // It gets operations (and has, or will have, what comes before them).
  bool fed() const { return phase >= Phase::kCopying; }
};

struct OwnedSlot {
  using Role = Shard::SlotRole;
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
  std::vector<SlotBackup> backups;
  uint64_t committed = 0;  // known only where several backups make it matter
  bool commit_untold = false;
  bool deposed = false;    // a backup has a newer epoch: nothing more is acknowledged
  bool enough = true;      // owners in sync, for min_in_sync
  bool handing_over = false;
  SlotWork work;

  // As a backup.
  bool whole = false;       // the copy is whole, or there was nothing to copy
  StateVersion added;
  uint64_t line_epoch = 0;  // operations are taken under this epoch
  uint64_t received = 0;    // index of the last operation received, of the primary of now
  // Not yet applied: from applied + 1 to `received`; and behind that what an earlier primary has sent,
  // under `kept_epoch`, until the primary of now has sent the same, or something else.
  std::deque<std::vector<std::byte>> tail;
  uint64_t kept_epoch = 0;
  // Where the copy is whole: the last operation that it has, of whichever primary.
  uint64_t held() const { return index_ + tail.size(); }
  bool copying = false;
  uint64_t chunks = 0;
  ByteWriter copy;

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
    CAIRN_CHECK(owned && primary());
    return Position::Of(epoch_, ++index_);
  }
  void ApplyUpTo(uint64_t index) {
    CAIRN_CHECK(role == Role::kBackup && index > index_);
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
  OwnedSlot& operator[](uint32_t local) { return slots_[local]; }
  const OwnedSlot& operator[](uint32_t local) const { return slots_[local]; }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }           // local numbers so far
  uint32_t slot_count() const { return static_cast<uint32_t>(local_of_.size()); }  // of the cluster
  void Forget(ClientIndex client) {
    for (OwnedSlot& slot : slots_) slot.numbers.Forget(client);
  }

 private:
  std::vector<uint32_t> local_of_;  // by slot id
  std::deque<OwnedSlot> slots_;
};

}  // namespace cairn::server

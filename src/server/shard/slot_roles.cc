#include "server/shard/slot_roles.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {
namespace {
// It is looked at every 100 ms: 2^24 operations are far more than a slot has in that time.
constexpr uint64_t kSpent = Position::kMaxIndex - (uint64_t{1} << 24);
constexpr uint64_t kNearlySpent = kSpent / 8 * 7;
}  // namespace

bool SlotRoles::Update() {
  const wire::ClusterState& state = context_.state();
  slots_.SetCount(state.slots.size());
  primary_side_.DropStreams();
  const uint32_t index = context_.server_index(), thread = context_.options().thread;
  const wire::ServerInfo* self = state.FindServer(index);
  const bool listed = self != nullptr && self->incarnation == context_.incarnation();
  bool lost = false;
  OwnedSlots::Totals totals;
  for (uint32_t s = 0; s < state.slots.size(); ++s) {
    const wire::SlotOwner& owner = state.slots[s];
    const bool primary = listed && owner.server == index && owner.thread == thread;
    const wire::Backup* backup =
        listed && !primary ? owner.FindBackup(static_cast<uint16_t>(index)) : nullptr;
    if (backup != nullptr && backup->thread != thread) backup = nullptr;
    uint32_t local = slots_.LocalOfAny(s);
    const bool was_owned = local != OwnedSlots::kNotHere && slots_[local].owned;
    const bool was_primary = local != OwnedSlots::kNotHere && slots_[local].primary();
    if (primary) {
      local = Place(s);
      BePrimary(local, owner);
      totals.handing_over += slots_[local].handing_over;
      totals.short_of_owners |= !slots_[local].enough;
    } else if (backup != nullptr) {
      local = Place(s);
      BeBackup(local, owner, *backup);
    } else if (local != OwnedSlots::kNotHere && slots_[local].present()) {
      LetGo(local);
    }
    if (local == OwnedSlots::kNotHere) continue;
    lost |= (was_owned && !slots_[local].owned) || (was_primary && !slots_[local].primary());
    totals.came |= !was_owned && slots_[local].owned;
  }
  slots_.SetTotals(totals);
  primary_side_.OnOwners();
  return lost;
}

uint32_t SlotRoles::Place(uint32_t slot) {
  const uint32_t known = slots_.size();
  const uint32_t local = slots_.Place(slot, context_.options().refusals_kept);
  if (local == known) {
    primary_side_.backups().AddSlot();
    backup_side_.AddSlot();
  }
  return local;
}

void SlotRoles::LetGo(uint32_t local) {
  OwnedSlot& slot = slots_[local];
  slot.role = OwnedSlot::Role::kNone;
  slot.owned = slot.handing_over = false;
  slot.ruin = OwnedSlot::Ruin::kNone;
  primary_side_.backups().Clear(local);
  backup_side_.Clear(local);
}

void SlotRoles::BePrimary(uint32_t local, const wire::SlotOwner& owner) {
  OwnedSlot& slot = slots_[local];
  Backups& backups = primary_side_.backups();
  const auto was = slot.role;
  BackupSide::Tail tail;
  if (was == OwnedSlot::Role::kBackup) {
    tail = backup_side_.tail(local);
    backups.TakeOver(local);
    if (!backup_side_.Promote(local)) Ruin(slot, OwnedSlot::Ruin::kNotWhole);
    if (CAIRN_BUG(kPromoteWithoutNumbers)) slot.numbers.Clear();
  }
  // It has missed an epoch of another primary, which can have committed nothing without this one.
  const bool again = was == OwnedSlot::Role::kPrimary && slot.epoch() != owner.epoch;
  if (again) backups[local].deposed = false;
  // Each primary has an epoch of its own, so that what an earlier one still sends can be told apart.
  CAIRN_CHECK(was != OwnedSlot::Role::kBackup || owner.epoch > slot.epoch() || CAIRN_ANY_BUG);
  slot.role = OwnedSlot::Role::kPrimary;
  slot.TakeEpoch(owner.epoch);
  slot.since = owner.since;
  slot.handing_over = owner.heir != wire::kNoServer;
  if (!slot.handing_over)
    for (SlotBackup& backup : backups[local].all) backup.compared = false;
  slot.owned = (!slot.handing_over || CAIRN_BUG(kHandoverUndrained)) && slot.ruin == OwnedSlot::Ruin::kNone;
  backups.Update(local, owner);
  // Without one that is gone more may be committed: those who are left are to hear of it, and a primary
  // that misses an epoch says it to them when it begins again.
  if (was == OwnedSlot::Role::kPrimary) backups.Recommit(local);
  // Or all of the slot's first epoch: nothing can have been committed in it either.
  const bool late = was == OwnedSlot::Role::kNone && owner.epoch > 1;
  const bool begins = was == OwnedSlot::Role::kBackup || again || late;
  if (begins && slot.ruin == OwnedSlot::Ruin::kNone) {
    primary_side_.TellPromoted(local, tail);
    if (context_.observer() != nullptr && !late) context_.observer()->OnPromoted(slot.id, slot.position());
  }
  uint32_t in_sync = 1;
  for (const wire::Backup& other : owner.backups) in_sync += other.in_sync;
  slot.enough = in_sync >= context_.state().min_in_sync || CAIRN_BUG(kMinInSyncIgnored);
}

// Nothing of the slot is served from now on.
void SlotRoles::Ruin(OwnedSlot& slot, OwnedSlot::Ruin ruin) {
  slot.ruin = ruin;
  slot.owned = false;
  news_.Raise();
  context_.Log("ERROR: partition " + std::to_string(slot.id.value) +
               (ruin == OwnedSlot::Ruin::kNotWhole
                    ? " was given to this server, whose copy of it is not whole: the job has to end"
                    : " has had " + std::to_string(slot.index()) +
                          " operations, more can't be counted: the job has to end"));
}

void SlotRoles::WatchPositions() {
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    OwnedSlot& slot = slots_[local];
    if (slot.index() < kNearlySpent || !slot.primary()) [[likely]]
      continue;
    if (!std::exchange(slot.told_nearly_spent, true))
      context_.Log("partition " + std::to_string(slot.id.value) + " has had " + std::to_string(slot.index()) +
                   " of " + std::to_string(kSpent) +
                   " operations that can be counted: start the job again before they are used up");
    if (slot.index() >= kSpent && slot.ruin == OwnedSlot::Ruin::kNone) Ruin(slot, OwnedSlot::Ruin::kSpent);
  }
}

void SlotRoles::BeBackup(uint32_t local, const wire::SlotOwner& owner, const wire::Backup& backup) {
  OwnedSlot& slot = slots_[local];
  const auto was = slot.role;
  slot.role = OwnedSlot::Role::kBackup;
  slot.owned = slot.handing_over = false;
  slot.ruin = OwnedSlot::Ruin::kNone;
  slot.enough = true;
  slot.since = owner.since;
  slot.TakeEpoch(owner.epoch);
  primary_side_.backups().Clear(local);
  backup_side_.Begin(local, was, owner, backup);
}

}  // namespace cairn::server

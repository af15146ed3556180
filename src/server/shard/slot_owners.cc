// What a new state makes of the slots here (docs/internals/consistency.md, rules 42 to 45 and 50): which this
// shard is the primary of, which it backs, who backs its own; promotion, handing over, letting go.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {
namespace {
// It is looked at every 100 ms: 2^24 operations are far more than a slot has in that time.
constexpr uint64_t kSpent = Position::kMaxIndex - (uint64_t{1} << 24);
constexpr uint64_t kNearlySpent = kSpent / 8 * 7;
}  // namespace

// True if a slot for which requests may be waiting is no longer taken care of here.
bool ShardImpl::UpdateOwners() {
  slots_.SetCount(context_.state().slots.size());
  DropStreams();
  const wire::ServerInfo* self = context_.state().FindServer(context_.server_index());
  const bool listed = self != nullptr && self->incarnation == context_.incarnation();
  bool lost = false;
  handing_over_ = 0;
  short_of_owners_ = slots_came_ = false;
  for (uint32_t s = 0; s < context_.state().slots.size(); ++s) {
    const wire::SlotOwner& owner = context_.state().slots[s];
    const bool primary = listed && owner.server == context_.server_index() && owner.thread == context_.options().thread;
    const wire::Backup* backup = listed && !primary ? owner.FindBackup(static_cast<uint16_t>(context_.server_index())) : nullptr;
    if (backup != nullptr && backup->thread != context_.options().thread) backup = nullptr;
    uint32_t local = slots_.LocalOfAny(s);
    const bool was_owned = local != OwnedSlots::kNotHere && slots_[local].owned;
    const bool was_primary = local != OwnedSlots::kNotHere && slots_[local].primary();
    if (primary) {
      local = slots_.Place(s, context_.options().refusals_kept);
      BePrimary(local, owner);
    } else if (backup != nullptr) {
      local = slots_.Place(s, context_.options().refusals_kept);
      BeBackup(local, owner, *backup);
    } else if (local != OwnedSlots::kNotHere && slots_[local].present()) {
      LetGo(local);
    }
    if (local == OwnedSlots::kNotHere) continue;
    lost |= (was_owned && !slots_[local].owned) || (was_primary && !slots_[local].primary());
    slots_came_ |= !was_owned && slots_[local].owned;
  }
  copies_wanted_ = 0;
  for (uint32_t local = 0; local < slots_.size(); ++local)
    for (const SlotBackup& backup : slots_[local].backups)
      copies_wanted_ += backup.phase == SlotBackup::Phase::kWaiting;
  for (auto& [key, stream] : streams_) {
    stream->first_waiting = 0;
    if (stream->copying == OwnedSlots::kNotHere) continue;
    const auto& backups = slots_[stream->copying].backups;
    const bool goes_on = std::any_of(backups.begin(), backups.end(), [its = stream.get()](const SlotBackup& backup) {
      return backup.stream == its && backup.phase == SlotBackup::Phase::kCopying;
    });
    if (goes_on) continue;
    stream->copying = OwnedSlots::kNotHere;
    stream->copy = {};
  }
  return lost;
}

void ShardImpl::LetGo(uint32_t local) {
  OwnedSlot& slot = slots_[local];
  slot.role = OwnedSlot::Role::kNone;
  slot.owned = slot.handing_over = slot.deposed = false;
  slot.ruin = OwnedSlot::Ruin::kNone;
  slot.backups.clear();
  ClearSlot(local);
}

void ShardImpl::BePrimary(uint32_t local, const wire::SlotOwner& owner) {
  OwnedSlot& slot = slots_[local];
  const auto was = slot.role;
  std::deque<std::vector<std::byte>> tail;
  if (was == OwnedSlot::Role::kBackup) {
    tail = slot.tail;  // it goes to the other owners too
    slot.committed = slot.index();
    const bool applied = ApplyTail(local, slot.held());
    if (!slot.whole || !applied) Ruin(slot, OwnedSlot::Ruin::kNotWhole);
    if (CAIRN_BUG(kPromoteWithoutNumbers)) slot.numbers.Clear();
    slot.backups.clear();
    slot.deposed = false;
  }
  // It has missed an epoch of another primary, which can have committed nothing without this one.
  const bool again = was == OwnedSlot::Role::kPrimary && slot.epoch() != owner.epoch;
  if (again) slot.deposed = false;
  slot.role = OwnedSlot::Role::kPrimary;
  slot.TakeEpoch(owner.epoch);
  slot.since = owner.since;
  slot.handing_over = owner.heir != wire::kNoServer;
  if (!slot.handing_over)
    for (SlotBackup& backup : slot.backups) backup.compared = false;
  slot.owned = (!slot.handing_over || CAIRN_BUG(kHandoverUndrained)) && slot.ruin == OwnedSlot::Ruin::kNone;
  handing_over_ += slot.handing_over;
  UpdateBackups(local, owner);
  // Without one that is gone more may be committed: those who are left are to hear of it, and a primary
  // that misses an epoch says it to them when it begins again.
  if (was == OwnedSlot::Role::kPrimary) Recommit(slot);
  // Or all of the slot's first epoch: nothing can have been committed in it either.
  const bool late = was == OwnedSlot::Role::kNone && owner.epoch > 1;
  const bool begins = was == OwnedSlot::Role::kBackup || again || late;
  if (begins && slot.ruin == OwnedSlot::Ruin::kNone) {
    for (SlotBackup& backup : slot.backups)
      if (backup.fed()) TellPromoted(local, backup, tail);
    if (context_.observer() != nullptr && !late) context_.observer()->OnPromoted(slot.id, slot.position());
  }
  uint32_t in_sync = 1;
  for (const wire::Backup& backup : owner.backups) in_sync += backup.in_sync;
  slot.enough = in_sync >= context_.state().min_in_sync || CAIRN_BUG(kMinInSyncIgnored);
  short_of_owners_ |= !slot.enough;
}

// Nothing of the slot is served from now on.
void ShardImpl::Ruin(OwnedSlot& slot, OwnedSlot::Ruin ruin) {
  slot.ruin = ruin;
  slot.owned = false;
  news_.Raise();
  context_.Log("ERROR: partition " + std::to_string(slot.id.value) +
      (ruin == OwnedSlot::Ruin::kNotWhole
           ? " was given to this server, whose copy of it is not whole: the job has to end"
           : " has had " + std::to_string(slot.index()) + " operations, more can't be counted: the job has to end"));
}

// Long before an index is too large for a position.
void ShardImpl::WatchPositions() {
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    OwnedSlot& slot = slots_[local];
    if (slot.index() < kNearlySpent || !slot.primary()) [[likely]] continue;
    if (!std::exchange(slot.told_nearly_spent, true))
      context_.Log("partition " + std::to_string(slot.id.value) + " has had " + std::to_string(slot.index()) + " of " +
          std::to_string(kSpent) + " operations that can be counted: start the job again before they are used up");
    if (slot.index() >= kSpent && slot.ruin == OwnedSlot::Ruin::kNone) Ruin(slot, OwnedSlot::Ruin::kSpent);
  }
}

void ShardImpl::UpdateBackups(uint32_t local, const wire::SlotOwner& owner) {
  OwnedSlot& slot = slots_[local];
  const auto same = [](const SlotBackup& have, const wire::Backup& want) {
    return have.server == want.server && have.added == want.added;
  };
  std::erase_if(slot.backups, [&](const SlotBackup& have) {
    const bool stays = std::any_of(owner.backups.begin(), owner.backups.end(),
                                   [&](const wire::Backup& want) { return same(have, want); });
    return !stays;
  });
  // Nobody waits any more for those who are gone.
  for (SlotBackup& backup : slot.backups) {
    std::erase_if(backup.caught_up_marks, [&](const auto& mark) {
      return std::none_of(slot.backups.begin(), slot.backups.end(), [&](const SlotBackup& other) {
        return other.waited() && other.stream == mark.first;
      });
    });
  }
  for (const wire::Backup& want : owner.backups) {
    auto it = std::find_if(slot.backups.begin(), slot.backups.end(),
                           [&](const SlotBackup& have) { return same(have, want); });
    if (it == slot.backups.end()) {
      SlotBackup fresh;
      fresh.server = want.server;
      fresh.added = want.added;
      fresh.stream = StreamTo(want.server, want.thread, context_.now_us());
      if (fresh.stream == nullptr) continue;  // the decoder has seen to it that the server is there
      if (want.in_sync) fresh.phase = SlotBackup::Phase::kInSync;
      fresh.confirmed_index = slot.committed;
      fresh.since_us = context_.now_us();
      slot.backups.push_back(std::move(fresh));
    } else if (want.in_sync && it->phase == SlotBackup::Phase::kWaited) {
      it->phase = SlotBackup::Phase::kInSync;
    }
  }
}

// A new primary says where it begins, and sends what may not be everywhere yet.
void ShardImpl::TellPromoted(uint32_t local, SlotBackup& backup, const std::deque<std::vector<std::byte>>& tail) {
  OwnedSlot& slot = slots_[local];
  wire::OpHeader header;
  header.kind = wire::OpKind::kContinue;
  header.slot = slot.id.value;
  header.epoch = slot.epoch();
  header.index = slot.index();
  header.committed = slot.committed;
  header.a = slot.index() - tail.size();
  backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
  size_t fed = 0;
  for (const SlotBackup& other : slot.backups) fed += other.fed();
  for (const auto& raw : tail) {
    if (CAIRN_BUG(kTailNotSent)) break;
    backup.stream->sender.batch().AddRaw(raw, slot.epoch(), fed == 1 ? slot.index() : slot.committed);
    Shipped(local, backup, fed > 1);  // large batches leave
  }
  Shipped(local, backup, fed > 1);
}

void ShardImpl::BeBackup(uint32_t local, const wire::SlotOwner& owner, const wire::Backup& backup) {
  OwnedSlot& slot = slots_[local];
  const bool fresh = slot.role == OwnedSlot::Role::kNone;
  const bool was_primary = slot.role == OwnedSlot::Role::kPrimary;
  slot.role = OwnedSlot::Role::kBackup;
  slot.owned = slot.handing_over = slot.deposed = false;
  slot.ruin = OwnedSlot::Ruin::kNone;
  slot.enough = true;
  slot.since = owner.since;
  if (fresh) {
    // In sync at first sight: the cluster has just been formed, and there is nothing yet.
    slot.ForgetIndex();
    slot.received = 0;
    slot.whole = backup.in_sync;
    slot.line_epoch = backup.in_sync ? owner.epoch : 0;
  } else if (was_primary) {
    slot.backups.clear();
    slot.whole = backup.in_sync;  // handed over: the same as the new primary has
    slot.received = slot.index();
    slot.line_epoch = 0;
    for (auto& [id, table] : tables_.all())  // what was only staged is sent to the new primary
      if (table.sync() && local < table.rounds.size()) table.rounds[local].DropStaged(*table.rows[local]);
  } else if (backup.added != slot.added) {
    slot.whole = false;
  }
  slot.added = backup.added;
  slot.TakeEpoch(owner.epoch);
}

}  // namespace cairn::server

// Nothing is answered before it is committed (docs/internals/consistency.md, rule 41): answers wait here until
// the backups have confirmed what they are about.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

void ShardImpl::SendWhenCommitted(ConnId conn, wire::FramePtr frame,
                                  std::span<const wire::SlotEntry> entries, bool every_slot) {
  if (streams_.empty() && !short_of_owners_) [[likely]] return outbox_.Send(conn, std::move(frame));
  HeldAnswer held;
  held.conn = conn;
  held.frame = std::move(frame);
  held.every_slot = every_slot;
  held.told_us = context_.now_us();
  if (!every_slot) {
    held.locals.reserve(entries.size());
    for (const wire::SlotEntry& entry : entries)
      if (uint32_t local = slots_.LocalOf(entry.slot); local != OwnedSlots::kNotHere)
        held.locals.push_back(local);
  }
  Mark(held);
  const bool read = held.frame->header().type == wire::FrameType::kPullReply;
  if ((read && CAIRN_BUG(kPullUncommitted)) || (!read && CAIRN_BUG(kAckUncommitted))) held.marks.clear();
  const uint64_t id = next_held_++;
  held_.emplace(id, std::move(held));
  AdvanceHeld(id);
  if (auto waits = held_.find(id); waits != held_.end()) wire::KeepValues(*waits->second.frame, context_.pool());
}

template <class Look>
void ShardImpl::ForEachLocal(const HeldAnswer& held, Look look) const {
  if (!held.every_slot) {
    for (uint32_t local : held.locals) look(slots_[local]);
    return;
  }
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].role == OwnedSlot::Role::kPrimary) look(slots_[local]);
}

// What has to be confirmed, as of now.
void ShardImpl::Mark(HeldAnswer& held) const {
  held.marks.clear();
  ForEachLocal(held, [&](const OwnedSlot& slot) {
    for (const SlotBackup& backup : slot.backups) {
      if (!backup.waited() || backup.shipped <= backup.stream->sender.confirmed()) continue;
      auto it = std::find_if(held.marks.begin(), held.marks.end(),
                             [&](const auto& mark) { return mark.first == backup.stream; });
      if (it == held.marks.end()) {
        held.marks.emplace_back(backup.stream, backup.shipped);
      } else {
        it->second = std::max(it->second, backup.shipped);
      }
    }
  });
}

void ShardImpl::AdvanceHeld(uint64_t id) {
  auto it = held_.find(id);
  if (it == held_.end()) return;
  HeldAnswer& held = it->second;
  while (!held.marks.empty()) {
    auto [stream, number] = held.marks.back();
    if (number > stream->sender.confirmed()) {
      // Numbers mostly rise; after a change of owners an answer may come back with a lower one.
      auto at = std::upper_bound(stream->waiting.begin(), stream->waiting.end(),
                                 std::pair<uint64_t, uint64_t>(number, id));
      stream->waiting.insert(at, {number, id});
      return;
    }
    held.marks.pop_back();
  }
  bool lost = false, blocked = false;
  ForEachLocal(held, [&](const OwnedSlot& slot) {
    lost |= slot.role != OwnedSlot::Role::kPrimary || slot.deposed;
    blocked |= !slot.enough;
    for (const SlotBackup& backup : slot.backups) blocked |= backup.waited() && backup.broken;
  });
  if (lost) return FailHeld(it);
  if (blocked) {
    blocked_.push_back(id);
    return;
  }
  HeldAnswer ready = std::move(held);
  held_.erase(it);
  outbox_.Send(ready.conn, std::move(ready.frame));
}

// A client that hears nothing takes its connection for dead and sends everything again. The oldest
// answer of a connection speaks for those behind it.
void ShardImpl::TellHeld(int64_t now_us) {
  told_.clear();
  for (auto& [id, held] : held_) {
    if (!told_.emplace(held.conn, true).second || now_us - held.told_us < context_.options().held_waiting_us) continue;
    held.told_us = now_us;
    const wire::FrameHeader& answer = held.frame->header();
    outbox_.Send(held.conn, wire::EncodeControl(wire::StillWaiting{answer.request_id, TableId{answer.table}, Round{0},
                                                           {}, HeldFor(held)},
                                        context_.pool()));
  }
}

std::string ShardImpl::HeldFor(const HeldAnswer& held) const {
  if (!held.marks.empty()) return held.marks.back().first->sender.Describe() + " to confirm";
  bool enough = true;
  ForEachLocal(held, [&](const OwnedSlot& slot) { enough &= slot.enough; });
  if (!enough) return std::to_string(context_.state().min_in_sync) + " owners in sync (--min-in-sync)";
  return "the scheduler to drop a backup that can't follow";
}

// Whoever owns the slot now decides: the client asks there.
void ShardImpl::FailHeld(HeldAnswers::iterator it) {
  const wire::FrameHeader request = it->second.frame->header();
  const ConnId conn = it->second.conn;
  held_.erase(it);
  outbox_.SendError(conn, request, {Code::kUnavailable, context_.name() + " is no longer the owner of some slots"});
}

void ShardImpl::ReleaseConfirmed(BackupStream& stream) {
  while (!stream.waiting.empty() && stream.waiting.front().first <= stream.sender.confirmed()) {
    const uint64_t id = stream.waiting.front().second;
    stream.waiting.pop_front();
    AdvanceHeld(id);
  }
}

// Owners have changed: what each answer waits for is looked at anew.
void ShardImpl::RegateAll() {
  for (auto& [key, stream] : streams_) stream->waiting.clear();
  blocked_.clear();
  std::vector<uint64_t> ids;
  ids.reserve(held_.size());
  for (auto& [id, held] : held_) {
    Mark(held);
    ids.push_back(id);
  }
  for (uint64_t id : ids) AdvanceHeld(id);
}

}  // namespace cairn::server

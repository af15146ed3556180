#include "server/replication/commit_gate.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "wire/control.h"
#include "wire/data.h"

namespace cairn::server {

void CommitGate::Send(ConnId conn, wire::FramePtr frame, std::span<const wire::SlotEntry> entries,
                      bool every_slot) {
  if (backups_.none() && !slots_.totals().short_of_owners) [[likely]]
    return outbox_.Send(conn, std::move(frame));
  Held held;
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
  const uint64_t id = next_++;
  held_.emplace(id, std::move(held));
  Advance(id);
  if (auto waits = held_.find(id); waits != held_.end())
    wire::KeepValues(*waits->second.frame, context_.pool());
}

template <class Look>
void CommitGate::ForEachLocal(const Held& held, Look look) const {
  if (!held.every_slot) {
    for (uint32_t local : held.locals) look(local);
    return;
  }
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].primary()) look(local);
}

// What has to be confirmed, as of now.
void CommitGate::Mark(Held& held) const {
  held.marks.clear();
  ForEachLocal(held, [&](uint32_t local) {
    for (const SlotBackup& backup : backups_[local].all) {
      if (!backup.waited() || backup.Confirmed()) continue;
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

void CommitGate::Advance(uint64_t id) {
  auto it = held_.find(id);
  if (it == held_.end()) return;
  Held& held = it->second;
  while (!held.marks.empty()) {
    auto [stream, number] = held.marks.back();
    if (number > stream->sender.confirmed()) {
      // What is waited for is under way, or in the batch that leaves with this event.
      CAIRN_CHECK(number <= stream->sender.next_number());
      // Numbers mostly rise; after a change of owners an answer may come back with a lower one.
      auto& waiting = waiting_[stream];
      auto at = std::upper_bound(waiting.begin(), waiting.end(), std::pair<uint64_t, uint64_t>(number, id));
      waiting.insert(at, {number, id});
      return;
    }
    held.marks.pop_back();
  }
  bool lost = false, blocked = false;
  ForEachLocal(held, [&](uint32_t local) {
    const BackedSlot& backed = backups_[local];
    lost |= !slots_[local].primary() || backed.deposed;
    blocked |= !slots_[local].enough;
    for (const SlotBackup& backup : backed.all) blocked |= backup.waited() && backup.broken;
  });
  if (lost) return Fail(it);
  if (blocked) {
    blocked_.push_back(id);
    return;
  }
  Held ready = std::move(held);
  held_.erase(it);
  outbox_.Send(ready.conn, std::move(ready.frame));
}

// The client asks the slot's owner of now, who decides.
void CommitGate::Fail(HeldAnswers::iterator it) {
  const wire::FrameHeader request = it->second.frame->header();
  const ConnId conn = it->second.conn;
  held_.erase(it);
  outbox_.SendError(conn, request,
                    {Code::kUnavailable, context_.name() + " is no longer the owner of some slots"});
}

void CommitGate::OnConfirmed(const BackupStream& stream) {
  auto found = waiting_.find(&stream);
  if (found == waiting_.end()) return;
  auto& waiting = found->second;
  while (!waiting.empty() && waiting.front().first <= stream.sender.confirmed()) {
    const uint64_t id = waiting.front().second;
    waiting.pop_front();
    Advance(id);
  }
}

void CommitGate::OnStreamGone(const BackupStream& stream) {
  waiting_.erase(&stream);
  for (auto& [id, held] : held_)
    std::erase_if(held.marks, [&](const auto& mark) { return mark.first == &stream; });
}

void CommitGate::OnState() {
  for (auto& [stream, waiting] : waiting_) waiting.clear();
  blocked_.clear();
  std::vector<uint64_t> ids;
  ids.reserve(held_.size());
  for (auto& [id, held] : held_) {
    Mark(held);
    ids.push_back(id);
  }
  for (uint64_t id : ids) Advance(id);
}

void CommitGate::Forget(ConnId conn) {
  std::erase_if(held_, [&](const auto& item) { return item.second.conn == conn; });
}

// The oldest answer of a connection speaks for those behind it.
void CommitGate::TellWaiting() {
  told_.clear();
  for (auto& [id, held] : held_) {
    if (!told_.emplace(held.conn, true).second ||
        context_.now_us() - held.told_us < context_.options().held_waiting_us)
      continue;
    held.told_us = context_.now_us();
    const wire::FrameHeader& answer = held.frame->header();
    outbox_.Send(held.conn, wire::EncodeControl(
                                wire::StillWaiting{
                                    answer.request_id, TableId{answer.table}, Round{0}, {}, WaitsFor(held)},
                                context_.pool()));
  }
}

std::string CommitGate::WaitsFor(const Held& held) const {
  if (!held.marks.empty()) return held.marks.back().first->sender.Describe() + " to confirm";
  bool enough = true;
  ForEachLocal(held, [&](uint32_t local) { enough &= slots_[local].enough; });
  if (!enough) return std::to_string(context_.state().min_in_sync) + " owners in sync (--min-in-sync)";
  return "the scheduler to drop a backup that can't follow";
}

}  // namespace cairn::server

// Copies of slots, as the primary sends them (docs/internals/consistency.md, rule 43): a slot's content is taken
// at one position and goes into the stream in pieces, a few at a time, so that operations of other
// slots pass between them; the slot's own later operations go along, and the backup keeps them.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

void ShardImpl::StartCopies() {
  for (auto& [key, stream] : streams_) {
    if (stream->copying != OwnedSlots::kNotHere) {
      SendChunks(*stream);
      continue;
    }
    if (copies_wanted_ == 0 || context_.now_us() < stream->next_copy_us) continue;
    if (!stream->sender.ready()) continue;
    if (stream->sender.unconfirmed_bytes() > context_.options().bounds.most_before_copy_bytes) {
      CAIRN_AT_BOUND(kBeforeCopyBytes);
      continue;
    }
    while (stream->first_waiting < slots_.size()) {
      const uint32_t local = stream->first_waiting++;
      OwnedSlot& slot = slots_[local];
      if (slot.role != OwnedSlot::Role::kPrimary || slot.handing_over) continue;
      auto it = std::find_if(slot.backups.begin(), slot.backups.end(), [its = stream.get()](const SlotBackup& backup) {
        return backup.stream == its && backup.phase == SlotBackup::Phase::kWaiting;
      });
      if (it == slot.backups.end()) continue;
      Copy(local, *it);
      break;
    }
  }
}

void ShardImpl::Copy(uint32_t local, SlotBackup& backup) {
  const OwnedSlot& slot = slots_[local];
  BackupStream& stream = *backup.stream;
  ByteWriter content;
  content_.Save(local, content);
  stream.copying = local;
  stream.copy = {};
  stream.copy.content = content.Take();
  stream.copy.index = slot.index();
  stream.copy.began_us = context_.now_us();
  backup.phase = SlotBackup::Phase::kCopying;
  backup.copy_end = UINT64_MAX;
  --copies_wanted_;
  AddToCopy(stream, backup, wire::OpKind::kBegin, backup.added.value, {});
  SendChunks(stream);
}

void ShardImpl::AddToCopy(BackupStream& stream, SlotBackup& backup, wire::OpKind kind, uint64_t a,
                          std::span<const std::byte> payload) {
  const OwnedSlot& slot = slots_[stream.copying];
  wire::OpHeader header;
  header.kind = kind;
  header.slot = slot.id.value;
  header.epoch = slot.epoch();
  header.index = stream.copy.index;
  header.a = a;
  if (kind == wire::OpKind::kEnd) {
    size_t fed = 0;
    for (const SlotBackup& other : slot.backups) fed += other.fed();
    header.committed = fed == 1 ? slot.index() : slot.committed;
  }
  stream.sender.batch().Add(header, nullptr, {}, {}, payload);
  Shipped(stream.copying, backup, false);
}

void ShardImpl::SendChunks(BackupStream& stream) {
  SlotCopy& copy = stream.copy;
  if (copy.ended) return;
  auto& backups = slots_[stream.copying].backups;
  auto backup = std::find_if(backups.begin(), backups.end(), [&](const SlotBackup& b) {
    return b.stream == &stream && b.phase == SlotBackup::Phase::kCopying;
  });
  if (backup == backups.end() || backup->broken) return;
  while (!copy.under_way.empty() && copy.under_way.front() <= stream.sender.confirmed())
    copy.under_way.pop_front();
  const bool hurry = copy.behind_bytes > context_.options().bounds.most_later_bytes;
  const size_t most = hurry ? SIZE_MAX : context_.options().bounds.copy_pieces_under_way;
  if (hurry) CAIRN_AT_BOUND(kLaterBytes);
  while (copy.sent < copy.content.size() && copy.under_way.size() < most) {
    const auto rest = std::span<const std::byte>(copy.content).subspan(copy.sent);
    const auto chunk = rest.first(std::min(rest.size(), context_.options().copy_chunk_bytes));
    copy.under_way.push_back(stream.sender.next_number());
    AddToCopy(stream, *backup, wire::OpKind::kChunk, copy.chunks++, chunk);
    copy.sent += chunk.size();
  }
  if (copy.sent < copy.content.size()) {
    CAIRN_AT_BOUND(kCopyPieces);
    return;
  }
  AddToCopy(stream, *backup, wire::OpKind::kEnd, copy.chunks, {});
  backup->copy_end = backup->shipped;
  copy.ended = true;
}

// The copy is there: from now on this backup's word is waited for.
void ShardImpl::FinishCopy(BackupStream& stream, uint64_t up_to, int64_t now_us) {
  if (stream.copying == OwnedSlots::kNotHere) return;
  const uint32_t local = stream.copying;
  OwnedSlot& slot = slots_[local];
  for (SlotBackup& backup : slot.backups) {
    if (backup.stream != &stream || backup.phase != SlotBackup::Phase::kCopying) continue;
    if (backup.broken) break;
    if (backup.copy_end > up_to && !CAIRN_BUG(kCaughtUpEarly)) return;
    backup.phase = SlotBackup::Phase::kWaited;
    backup.confirmed_index = std::max(backup.confirmed_index, slot.committed);
    for (const SlotBackup& other : slot.backups)
      if (other.waited()) backup.caught_up_marks.emplace_back(other.stream, other.shipped);
    catching_up_.push_back(local);
    break;
  }
  const int64_t took = now_us - stream.copy.began_us;
  const bool small = stream.copy.content.size() <= context_.options().bounds.small_copy_bytes;
  if (!small) CAIRN_AT_BOUND(kCopyPause);
  stream.next_copy_us = small ? 0 : now_us + took;
  stream.copying = OwnedSlots::kNotHere;
  stream.copy = {};
}

void ShardImpl::CheckCaughtUp() {
  std::erase_if(catching_up_, [&](uint32_t local) {
    bool all = true;
    for (SlotBackup& backup : slots_[local].backups) {
      if (backup.phase != SlotBackup::Phase::kWaited || backup.caught_up || backup.broken) continue;
      const bool there = std::all_of(backup.caught_up_marks.begin(), backup.caught_up_marks.end(),
                                     [](const auto& m) { return m.first->sender.confirmed() >= m.second; });
      if (there || CAIRN_BUG(kCaughtUpEarly)) {
        backup.caught_up = true;
        news_.Raise();
      } else {
        all = false;
      }
    }
    return all;
  });
}

}  // namespace cairn::server

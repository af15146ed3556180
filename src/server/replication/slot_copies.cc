#include "server/replication/slot_copies.h"

#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {

void SlotCopies::OnOwners() {
  wanted_ = 0;
  for (uint32_t local = 0; local < slots_.size(); ++local)
    for (const SlotBackup& backup : backups_[local].all)
      wanted_ += backup.phase == SlotBackup::Phase::kWaiting;
  for (auto& [key, stream] : backups_.streams()) {
    stream->first_waiting = 0;
    if (stream->copying == OwnedSlots::kNotHere || CopiedTo(*stream) != nullptr) continue;
    stream->copying = OwnedSlots::kNotHere;
    stream->copy = {};
  }
}

SlotBackup* SlotCopies::CopiedTo(BackupStream& stream) {
  auto& all = backups_[stream.copying].all;
  auto it = std::find_if(all.begin(), all.end(), [&](const SlotBackup& backup) {
    return backup.stream == &stream && backup.phase == SlotBackup::Phase::kCopying;
  });
  return it == all.end() ? nullptr : &*it;
}

void SlotCopies::Advance() {
  for (auto& [key, stream] : backups_.streams()) {
    if (stream->copying != OwnedSlots::kNotHere) {
      SendChunks(*stream);
      continue;
    }
    if (wanted_ == 0 || context_.now_us() < stream->next_copy_us) continue;
    if (!stream->sender.ready()) continue;
    if (stream->sender.unconfirmed_bytes() > context_.options().bounds.most_before_copy_bytes) {
      CAIRN_AT_BOUND(kBeforeCopyBytes);
      continue;
    }
    while (stream->first_waiting < slots_.size()) {
      const uint32_t local = stream->first_waiting++;
      if (!slots_[local].primary() || slots_[local].handing_over) continue;
      auto& all = backups_[local].all;
      auto it = std::find_if(all.begin(), all.end(), [its = stream.get()](const SlotBackup& backup) {
        return backup.stream == its && backup.phase == SlotBackup::Phase::kWaiting;
      });
      if (it == all.end()) continue;
      Begin(local, *it);
      break;
    }
  }
}

void SlotCopies::Begin(uint32_t local, SlotBackup& backup) {
  BackupStream& stream = *backup.stream;
  CAIRN_CHECK(stream.copying == OwnedSlots::kNotHere && wanted_ > 0);
  CAIRN_CHECK(slots_[local].primary() && backup.phase == SlotBackup::Phase::kWaiting && backup.shipped == 0);
  ByteWriter content;
  content_.Save(local, content);
  stream.copying = local;
  stream.copy = {};
  stream.copy.content = content.Take();
  stream.copy.index = slots_[local].index();
  stream.copy.began_us = context_.now_us();
  backup.phase = SlotBackup::Phase::kCopying;
  backup.copy_end = UINT64_MAX;
  --wanted_;
  Add(stream, backup, wire::OpKind::kBegin, backup.added.value, {});
  SendChunks(stream);
}

void SlotCopies::Add(BackupStream& stream, SlotBackup& backup, wire::OpKind kind, uint64_t a,
                     std::span<const std::byte> payload) {
  const OwnedSlot& slot = slots_[stream.copying];
  CAIRN_CHECK(slot.primary() && slot.index() >= stream.copy.index);
  wire::OpHeader header;
  header.kind = kind;
  header.slot = slot.id.value;
  header.epoch = slot.epoch();
  header.index = stream.copy.index;
  header.a = a;
  if (kind == wire::OpKind::kEnd)
    header.committed = backups_.CommittedWith(stream.copying, backups_[stream.copying].CountFed());
  stream.sender.batch().Add(header, nullptr, {}, {}, payload);
  backups_.Shipped(stream.copying, backup, false);
}

void SlotCopies::SendChunks(BackupStream& stream) {
  SlotCopy& copy = stream.copy;
  if (copy.ended) return;
  SlotBackup* const backup = CopiedTo(stream);
  if (backup == nullptr || backup->broken) return;
  while (!copy.under_way.empty() && copy.under_way.front() <= stream.sender.confirmed())
    copy.under_way.pop_front();
  const ShardBounds& bounds = context_.options().bounds;
  const bool hurry = copy.behind_bytes > bounds.most_later_bytes;
  const size_t most = hurry ? SIZE_MAX : bounds.copy_pieces_under_way;
  if (hurry) CAIRN_AT_BOUND(kLaterBytes);
  while (copy.sent < copy.content.size() && copy.under_way.size() < most) {
    const auto rest = std::span<const std::byte>(copy.content).subspan(copy.sent);
    const auto chunk = rest.first(std::min(rest.size(), context_.options().copy_chunk_bytes));
    copy.under_way.push_back(stream.sender.next_number());
    Add(stream, *backup, wire::OpKind::kChunk, copy.chunks++, chunk);
    copy.sent += chunk.size();
  }
  if (copy.sent < copy.content.size()) {
    CAIRN_AT_BOUND(kCopyPieces);
    return;
  }
  Add(stream, *backup, wire::OpKind::kEnd, copy.chunks, {});
  backup->copy_end = backup->shipped;
  copy.ended = true;
}

void SlotCopies::NoteBehind(const SlotBackup& backup, size_t bytes) {
  if (backup.phase == SlotBackup::Phase::kCopying) backup.stream->copy.behind_bytes += bytes;
}

// The copy is there: from now on this backup's word is waited for.
void SlotCopies::OnConfirmed(BackupStream& stream, uint64_t up_to, int64_t now_us) {
  if (stream.copying == OwnedSlots::kNotHere) return;
  const uint32_t local = stream.copying;
  BackedSlot& backed = backups_[local];
  for (SlotBackup& backup : backed.all) {
    if (backup.stream != &stream || backup.phase != SlotBackup::Phase::kCopying) continue;
    if (backup.broken) break;
    if (backup.copy_end > up_to && !CAIRN_BUG(kCaughtUpEarly)) return;
    CAIRN_CHECK(stream.copy.ended || CAIRN_ANY_BUG);
    backup.phase = SlotBackup::Phase::kWaited;
    backup.confirmed_index = std::max(backup.confirmed_index, backed.committed);
    for (const SlotBackup& other : backed.all)
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

void SlotCopies::CheckCaughtUp() {
  std::erase_if(catching_up_, [&](uint32_t local) {
    bool all = true;
    for (SlotBackup& backup : backups_[local].all) {
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

// The primary's side of replication (docs/internals/consistency.md, rules 40, 41, 45, 47 and 51): what goes
// to the backups, what their confirmations mean, and what the scheduler is told.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

BackupStream* ShardImpl::StreamTo(uint16_t server, uint16_t thread, int64_t now_us) {
  const wire::ServerInfo* peer = context_.state().FindServer(server);
  if (peer == nullptr) return nullptr;
  auto& stream = streams_[{peer->incarnation, thread}];
  if (stream == nullptr) {
    ReplicaRoute route;
    route.cluster_id = context_.state().cluster_id;
    route.from_server = static_cast<uint16_t>(context_.server_index());
    route.from_thread = static_cast<uint16_t>(context_.options().thread);
    route.from_incarnation = context_.incarnation();
    route.to_server = server;
    route.to_thread = thread;
    route.to_incarnation = peer->incarnation;
    route.endpoint = peer->endpoint;
    ReplicaStreamTimes times;
    times.resend_after_us = context_.options().resend_after_us;
    ReplicaSender::Listener& listener = *this;
    stream = std::make_unique<BackupStream>(std::move(route), times, network_, context_.pool(), senders_by_conn_, listener);
    stream->sender.Start(now_us);
  }
  return stream.get();
}

void ShardImpl::DropStreams() {
  std::erase_if(streams_, [&](const auto& item) {
    const auto incarnation = item.first.first;
    const bool there = std::any_of(context_.state().servers.begin(), context_.state().servers.end(),
                                   [&](const auto& server) { return server.incarnation == incarnation; });
    if (!there) {
      item.second->sender.Stop();
      for (auto& [id, held] : held_)
        std::erase_if(held.marks, [&](const auto& mark) { return mark.first == item.second.get(); });
      for (uint32_t local = 0; local < slots_.size(); ++local)
        for (SlotBackup& backup : slots_[local].backups)
          std::erase_if(backup.caught_up_marks,
                        [&](const auto& mark) { return mark.first == item.second.get(); });
    }
    return !there;
  });
}

void ShardImpl::Ship(uint32_t local, wire::OpHeader header, const wire::PushParams* params,
                     std::span<const RowKey> keys, table::Mask mask, std::span<const std::byte> payload,
                     const std::shared_ptr<const Buffer>& keep) {
  OwnedSlot& slot = slots_[local];
  size_t fed = 0;  // those that can't follow too: until they are dropped they may be on record as in sync
  for (const SlotBackup& backup : slot.backups) fed += backup.fed();
  if (fed == 0) return;
  if (payload.size() + keys.size_bytes() > context_.options().bounds.most_operation_bytes) return ShipNothing(local);
  header.slot = slot.id.value;
  header.epoch = slot.epoch();
  header.index = slot.index();
  // What the only backup receives is committed by that.
  header.committed = fed == 1 ? slot.index() : slot.committed;
  for (SlotBackup& backup : slot.backups) {
    if (!backup.fed() || backup.broken) continue;
    backup.stream->sender.batch().Add(header, params, keys, mask, payload, keep);
    if (backup.phase == SlotBackup::Phase::kCopying)
      backup.stream->copy.behind_bytes += payload.size() + keys.size_bytes();
    Shipped(local, backup, fed > 1);
  }
}

// More than one operation can carry (the sums of a huge sparse slot): those who would need it are copied
// to anew, which goes in pieces.
void ShardImpl::ShipNothing(uint32_t local) {
  CAIRN_AT_BOUND(kOperationBytes);
  context_.Log("partition " + std::to_string(slots_[local].id.value) +
      ": an operation is too large for one message, so its backups are copied to anew");
  for (SlotBackup& backup : slots_[local].backups)
    if (backup.fed()) Break(backup);
}

// What was just added to the batch is about this slot.
void ShardImpl::Shipped(uint32_t local, SlotBackup& backup, bool note) {
  ReplicaSender& sender = backup.stream->sender;
  backup.shipped = sender.next_number();
  if (backup.first_shipped == 0) backup.first_shipped = backup.shipped;
  if (note) backup.stream->notes.push_back({backup.shipped, local, slots_[local].index()});
  FlushIfFull(sender);
}

void ShardImpl::FlushIfFull(ReplicaSender& sender) {
  if (sender.batch().bytes() < context_.options().bounds.batch_bytes) return;
  CAIRN_AT_BOUND(kBatchBytes);
  sender.Flush(context_.version().value, context_.now_us());
}

void ShardImpl::FlushStreams() {
  for (auto& [key, stream] : streams_) stream->sender.Flush(context_.version().value, context_.now_us());
}

void ShardImpl::ShipPush(const Request& request, const Part& part, const wire::PushParams& params) {
  if (slots_[part.local].backups.empty()) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kPush;
  header.table = request.table().value;
  header.a = request.incarnation().value;
  header.b = part.entry.number;
  Ship(part.local, header, &params, part.keys, part.mask, part.values, push_body_);
}

void ShardImpl::ShipRefusal(const Request& request, const Part& part, const Status& why) {
  if (slots_[part.local].backups.empty()) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kRefusal;
  header.table = request.table().value;
  header.a = request.incarnation().value;
  header.b = part.entry.number;
  ByteWriter payload;
  payload.Put(static_cast<uint8_t>(why.code()));
  payload.PutText(why.message());
  Ship(part.local, header, nullptr, {}, {}, payload.bytes());
}

void ShardImpl::ShipSumUp(const TableState& table, uint32_t local) {
  if (slots_[local].backups.empty()) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kSumUp;
  header.table = table.info.id.value;
  header.a = table.rounds[local].open().value;
  ByteWriter payload;
  table.rounds[local].SaveSummed(payload);
  const table::SlotTable& rows = *table.rows[local];
  payload.Put(static_cast<uint8_t>(rows.staged()));
  if (rows.staged()) rows.SaveStaged(payload);
  Ship(local, header, nullptr, {}, {}, payload.bytes());
}

// Before the round is closed here: the sums are gone then. The position is the one it is about to get.
void ShardImpl::ShipClose(const TableState& table, uint32_t local, const SlotRound::Closed& closed) {
  if (slots_[local].backups.empty()) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kClose;
  header.table = table.info.id.value;
  header.a = table.rounds[local].open().value;
  ByteWriter payload;
  SaveClosed(closed, payload);
  const bool sums = closed.effect != SlotRound::Effect::kNothing && !closed.two_phase;
  payload.Put(static_cast<uint8_t>(sums));
  if (sums) table.rows[local]->SaveStaged(payload);
  Ship(local, header, nullptr, {}, {}, payload.bytes());
}

void ShardImpl::OnConfirmed(ReplicaSender& sender, uint64_t up_to,
                            std::span<const wire::SlotEntry> refused, int64_t now_us) {
  auto found = std::find_if(streams_.begin(), streams_.end(),
                            [&](const auto& item) { return &item.second->sender == &sender; });
  if (found == streams_.end()) return;
  BackupStream& stream = *found->second;
  for (const wire::SlotEntry& entry : refused) OnSlotRefused(stream, entry, up_to);
  for (; !stream.notes.empty() && stream.notes.front().number <= up_to; stream.notes.pop_front()) {
    const BackupStream::Note& note = stream.notes.front();
    for (SlotBackup& backup : slots_[note.local].backups)
      if (backup.stream == &stream && !backup.broken)
        backup.confirmed_index = std::max(backup.confirmed_index, note.index);
    Recommit(slots_[note.local]);
  }
  FinishCopy(stream, up_to, now_us);
  CheckCaughtUp();
  ReleaseConfirmed(stream);
  CompareWithHeirs();
}

void ShardImpl::OnSlotRefused(BackupStream& stream, const wire::SlotEntry& entry, uint64_t up_to) {
  const uint32_t local = slots_.LocalOfAny(entry.slot);
  if (local == OwnedSlots::kNotHere || slots_[local].role != OwnedSlot::Role::kPrimary) return;
  if (CAIRN_BUG(kRefusedSlotCounts)) return;
  OwnedSlot& slot = slots_[local];
  if (entry.number > slot.epoch()) {
    slot.deposed = true;
    return;
  }
  for (SlotBackup& backup : slot.backups) {
    // Of what came before this backup was one, nothing counts.
    if (backup.stream != &stream || backup.broken || backup.first_shipped == 0) continue;
    if (up_to < backup.first_shipped) continue;
    Break(backup);
  }
}

void ShardImpl::Recommit(OwnedSlot& slot) {
  uint64_t committed = slot.index();
  for (const SlotBackup& backup : slot.backups)
    if (backup.waited()) committed = std::min(committed, backup.confirmed_index);
  if (committed <= slot.committed) return;
  slot.committed = committed;
  slot.commit_untold = true;
}

bool ShardImpl::Drained(const OwnedSlot& slot) const {
  if (slot.deposed) return false;
  return std::all_of(slot.backups.begin(), slot.backups.end(), [](const SlotBackup& backup) {
    return !backup.waited() || (!backup.broken && backup.shipped <= backup.stream->sender.confirmed());
  });
}

std::vector<wire::SlotNews> ShardImpl::news() const {
  std::vector<wire::SlotNews> news;
  if (!context_.has_state()) return news;
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    const OwnedSlot& slot = slots_[local];
    if (slot.role != OwnedSlot::Role::kPrimary || slot.deposed) continue;
    const auto say = [&](wire::SlotNews::Kind kind, uint16_t server, StateVersion added) {
      news.push_back({slot.id.value, kind, server, slot.epoch(), added});
    };
    if (slot.ruin != OwnedSlot::Ruin::kNone) {
      say(slot.ruin == OwnedSlot::Ruin::kSpent ? wire::SlotNews::kSpent : wire::SlotNews::kNotWhole,
          static_cast<uint16_t>(context_.server_index()), StateVersion{0});
      continue;
    }
    for (const SlotBackup& backup : slot.backups) {
      if (backup.broken) {
        say(wire::SlotNews::kDiverged, backup.server, backup.added);
      } else if (backup.phase == SlotBackup::Phase::kWaited && backup.caught_up) {
        say(wire::SlotNews::kCaughtUp, backup.server, backup.added);
      } else if (backup.shipped > backup.stream->sender.confirmed() &&
                 Slow(backup.stream->sender)) {
        say(wire::SlotNews::kSlow, backup.server, backup.added);
      } else if (backup.phase == SlotBackup::Phase::kWaiting && !backup.stream->sender.ready() &&
                 context_.now_us() - std::max(backup.since_us, context_.awake_us()) >= context_.options().slow_after_us) {
        say(wire::SlotNews::kSlow, backup.server, backup.added);  // it can't even be reached
      }
    }
    const uint16_t heir = context_.state().slots[slot.id.value].heir;
    const bool compared =
        std::any_of(slot.backups.begin(), slot.backups.end(),
                    [&](const SlotBackup& backup) { return backup.server == heir && backup.compared; });
    if (slot.handing_over && ((compared && Drained(slot)) || CAIRN_BUG(kHandoverUndrained)))
      say(wire::SlotNews::kHandedOver, heir, StateVersion{0});
  }
  return news;
}

// Where several backups wait to hear what is committed, and nothing else goes to them.
void ShardImpl::TellCommits() {
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    OwnedSlot& slot = slots_[local];
    if (!slot.commit_untold) continue;
    slot.commit_untold = false;
    if (slot.role != OwnedSlot::Role::kPrimary) continue;
    wire::OpHeader header;
    header.kind = wire::OpKind::kCommit;
    header.slot = slot.id.value;
    header.epoch = slot.epoch();
    header.index = slot.index();
    header.committed = slot.committed;
    for (SlotBackup& backup : slot.backups) {
      if (!backup.fed()) continue;
      backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
      FlushIfFull(backup.stream->sender);
    }
  }
}

void ShardImpl::SendHash() {
  if (context_.now_us() - hash_us_ < context_.options().hash_every_us || slots_.size() == 0) return;
  hash_us_ = context_.now_us();
  for (uint32_t tried = 0; tried < slots_.size(); ++tried) {
    const uint32_t local = next_hashed_++ % slots_.size();
    OwnedSlot& slot = slots_[local];
    const bool any = std::any_of(slot.backups.begin(), slot.backups.end(),
                                 [](const SlotBackup& backup) { return backup.waited(); });
    if (slot.role != OwnedSlot::Role::kPrimary || !any) continue;
    const wire::OpHeader header = HashOf(slot);
    for (SlotBackup& backup : slot.backups)
      if (backup.waited()) backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
    return;
  }
}

wire::OpHeader ShardImpl::HashOf(const OwnedSlot& slot) const {
  wire::OpHeader header;
  header.kind = wire::OpKind::kHash;
  header.slot = slot.id.value;
  header.epoch = slot.epoch();
  header.index = slot.index();
  header.a = content_.Hash(slots_.LocalOfAny(slot.id.value));
  header.b = content_.TablesMark();
  return header;
}

// Before a slot goes to its heir, and when the heir has everything, the two are compared, unless that
// would keep the slot standing still for long. A difference ends the handing over: the heir is reported
// as diverged.
void ShardImpl::CompareWithHeirs() {
  if (handing_over_ == 0) return;
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    OwnedSlot& slot = slots_[local];
    if (!slot.handing_over || !Drained(slot)) continue;
    for (SlotBackup& backup : slot.backups) {
      if (backup.server != context_.state().slots[slot.id.value].heir || !backup.waited() || backup.compared) continue;
      backup.compared = true;
      if (content_.Bytes(local) > context_.options().bounds.most_compared_bytes) {
        CAIRN_AT_BOUND(kComparedBytes);
        continue;
      }
      wire::OpHeader header = HashOf(slot);
      header.committed = slot.index();  // as everybody who is waited for has it
      backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
      Shipped(local, backup, false);
    }
  }
  news_.Raise();
}

}  // namespace cairn::server

#include "server/replication/primary_side.h"

#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {

PrimarySide::PrimarySide(const ShardContext& context, Network& network, const OwnedSlots& slots,
                         const SlotContent& content, NewsFlag& news, Listener& listener)
    : context_(context),
      slots_(slots),
      content_(content),
      news_(news),
      listener_(listener),
      backups_(context, network, slots, news, *this),
      copies_(context, slots, content, backups_, news) {}

void PrimarySide::DropStreams() {
  for (const auto& stream : backups_.TakeGone()) listener_.OnStreamGone(*stream);
}

void PrimarySide::TellPromoted(uint32_t local, const std::deque<std::vector<std::byte>>& tail) {
  const OwnedSlot& slot = slots_[local];
  BackedSlot& backed = backups_[local];
  CAIRN_CHECK(slot.index() >= tail.size());
  const size_t fed = backed.CountFed();
  for (SlotBackup& backup : backed.all) {
    if (!backup.fed()) continue;
    wire::OpHeader header;
    header.kind = wire::OpKind::kContinue;
    header.slot = slot.id.value;
    header.epoch = slot.epoch();
    header.index = slot.index();
    header.committed = backed.committed;
    header.a = slot.index() - tail.size();
    backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
    for (const auto& raw : tail) {
      if (CAIRN_BUG(kTailNotSent)) break;
      backup.stream->sender.batch().AddRaw(raw, slot.epoch(), backups_.CommittedWith(local, fed));
      backups_.Shipped(local, backup, fed > 1);  // large batches leave
    }
    backups_.Shipped(local, backup, fed > 1);
  }
}

void PrimarySide::OnState() {
  copies_.CheckCaughtUp();
  CompareWithHeirs();
}

void PrimarySide::Ship(uint32_t local, wire::OpHeader header, const wire::PushParams* params,
                       std::span<const RowKey> keys, table::Mask mask, std::span<const std::byte> payload,
                       const std::shared_ptr<const Buffer>& keep) {
  BackedSlot& backed = backups_[local];
  const size_t fed = backed.CountFed();
  if (fed == 0) return;
  const size_t bytes = payload.size() + keys.size_bytes();
  if (bytes > context_.options().bounds.most_operation_bytes) return ShipNothing(local);
  header.slot = slots_[local].id.value;
  header.epoch = slots_[local].epoch();
  header.index = slots_[local].index();
  header.committed = backups_.CommittedWith(local, fed);
  CAIRN_CHECK(header.committed <= header.index || CAIRN_ANY_BUG);
  for (SlotBackup& backup : backed.all) {
    if (!backup.fed() || backup.broken) continue;
    backup.stream->sender.batch().Add(header, params, keys, mask, payload, keep);
    copies_.NoteBehind(backup, bytes);
    backups_.Shipped(local, backup, fed > 1);
  }
}

// More than one operation can carry (the sums of a huge sparse slot): those who would need it are copied
// to again, which goes in pieces.
void PrimarySide::ShipNothing(uint32_t local) {
  CAIRN_AT_BOUND(kOperationBytes);
  context_.Log("partition " + std::to_string(slots_[local].id.value) +
               ": an operation is too large for one message, so its backups are copied to anew");
  for (SlotBackup& backup : backups_[local].all)
    if (backup.fed()) backups_.Break(backup);
}

void PrimarySide::ShipPush(const Request& request, const Part& part, const wire::PushParams& params,
                           const std::shared_ptr<const Buffer>& keep) {
  if (!Backed(part.local)) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kPush;
  header.table = request.table().value;
  header.a = request.incarnation().value;
  header.b = part.entry.number;
  Ship(part.local, header, &params, part.keys, part.mask, part.values, keep);
}

void PrimarySide::ShipRefusal(const Request& request, const Part& part, const Status& why) {
  if (!Backed(part.local)) return;
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

void PrimarySide::ShipSumUp(TableId table, const SlotRound& round, const table::SlotTable& rows,
                            uint32_t local) {
  if (!Backed(local)) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kSumUp;
  header.table = table.value;
  header.a = round.open().value;
  ByteWriter payload;
  round.SaveSummed(payload);
  payload.Put(static_cast<uint8_t>(rows.staged()));
  if (rows.staged()) rows.SaveStaged(payload);
  Ship(local, header, nullptr, {}, {}, payload.bytes());
}

void PrimarySide::ShipClose(TableId table, const SlotRound& round, const ClosedRound& closed,
                            const table::SlotTable& rows, uint32_t local) {
  if (!Backed(local)) return;
  wire::OpHeader header;
  header.kind = wire::OpKind::kClose;
  header.table = table.value;
  header.a = round.open().value;
  ByteWriter payload;
  SaveClosed(closed, payload);
  const bool sums = closed.effect != ClosedRound::Effect::kNothing && !closed.two_phase;
  payload.Put(static_cast<uint8_t>(sums));
  if (sums) rows.SaveStaged(payload);
  Ship(local, header, nullptr, {}, {}, payload.bytes());
}

void PrimarySide::OnConfirmed(ReplicaSender& sender, uint64_t up_to, std::span<const wire::SlotEntry> refused,
                              int64_t now_us) {
  BackupStream* const stream = backups_.Find(sender);
  if (stream == nullptr) return;
  for (const wire::SlotEntry& entry : refused) backups_.OnSlotRefused(*stream, entry, up_to);
  backups_.OnConfirmed(*stream, up_to);
  copies_.OnConfirmed(*stream, up_to, now_us);
  copies_.CheckCaughtUp();
  listener_.OnConfirmed(*stream);
  CompareWithHeirs();
}

void PrimarySide::OnTick() {
  if (backups_.none()) return;
  for (auto& [key, stream] : backups_.streams()) {
    stream->sender.OnTick(context_.now_us());
    if (backups_.Slow(stream->sender)) news_.Raise();
  }
  TellCommits();
  CompareWithHeirs();
  SendHash();
  Flush();
}

void PrimarySide::Flush() {
  if (backups_.none()) return;
  copies_.Advance();
  backups_.FlushAll();
}

// It waits to be copied to, and there has been no connection for as long as makes a backup slow.
bool PrimarySide::OutOfReach(const SlotBackup& backup) const {
  return backup.phase == SlotBackup::Phase::kWaiting && !backup.stream->sender.ready() &&
         context_.now_us() - std::max(backup.since_us, context_.awake_us()) >=
             context_.options().slow_after_us;
}

std::vector<wire::SlotNews> PrimarySide::news() const {
  std::vector<wire::SlotNews> news;
  if (!context_.has_state()) return news;
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    const OwnedSlot& slot = slots_[local];
    const BackedSlot& backed = backups_[local];
    if (!slot.primary() || backed.deposed) continue;
    const auto say = [&](wire::SlotNews::Kind kind, uint16_t server, StateVersion added) {
      news.push_back({slot.id.value, kind, server, slot.epoch(), added});
    };
    if (slot.ruin != OwnedSlot::Ruin::kNone) {
      say(slot.ruin == OwnedSlot::Ruin::kSpent ? wire::SlotNews::kSpent : wire::SlotNews::kNotWhole,
          static_cast<uint16_t>(context_.server_index()), StateVersion{0});
      continue;
    }
    for (const SlotBackup& backup : backed.all) {
      if (backup.broken) {
        say(wire::SlotNews::kDiverged, backup.server, backup.added);
      } else if (backup.phase == SlotBackup::Phase::kWaited && backup.caught_up) {
        say(wire::SlotNews::kCaughtUp, backup.server, backup.added);
      } else if ((!backup.Confirmed() && backups_.Slow(backup.stream->sender)) || OutOfReach(backup)) {
        say(wire::SlotNews::kSlow, backup.server, backup.added);
      }
    }
    const uint16_t heir = context_.state().slots[slot.id.value].heir;
    const bool compared = std::any_of(backed.all.begin(), backed.all.end(), [&](const SlotBackup& backup) {
      return backup.server == heir && backup.compared;
    });
    if (slot.handing_over && ((compared && backed.Drained()) || CAIRN_BUG(kHandoverUndrained)))
      say(wire::SlotNews::kHandedOver, heir, StateVersion{0});
  }
  return news;
}

// Where several backups wait to hear what is committed, and nothing else goes to them.
void PrimarySide::TellCommits() {
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    BackedSlot& backed = backups_[local];
    if (!std::exchange(backed.commit_untold, false) || !slots_[local].primary()) continue;
    wire::OpHeader header;
    header.kind = wire::OpKind::kCommit;
    header.slot = slots_[local].id.value;
    header.epoch = slots_[local].epoch();
    header.index = slots_[local].index();
    header.committed = backed.committed;
    for (SlotBackup& backup : backed.all) {
      if (!backup.fed()) continue;
      backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
      backups_.FlushIfFull(backup.stream->sender);
    }
  }
}

void PrimarySide::SendHash() {
  if (context_.now_us() - hash_us_ < context_.options().hash_every_us || slots_.size() == 0) return;
  hash_us_ = context_.now_us();
  for (uint32_t tried = 0; tried < slots_.size(); ++tried) {
    const uint32_t local = next_hashed_++ % slots_.size();
    auto& all = backups_[local].all;
    const bool any =
        std::any_of(all.begin(), all.end(), [](const SlotBackup& backup) { return backup.waited(); });
    if (!slots_[local].primary() || !any) continue;
    const wire::OpHeader header = HashOf(local);
    for (SlotBackup& backup : all)
      if (backup.waited()) backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
    return;
  }
}

wire::OpHeader PrimarySide::HashOf(uint32_t local) const {
  wire::OpHeader header;
  header.kind = wire::OpKind::kHash;
  header.slot = slots_[local].id.value;
  header.epoch = slots_[local].epoch();
  header.index = slots_[local].index();
  header.a = content_.Hash(local);
  header.b = content_.TablesMark();
  return header;
}

// Before a slot goes to its heir, and when the heir has everything, the two are compared, unless that
// would keep the slot standing still for long. A difference ends the handing over: the heir is reported
// as diverged.
void PrimarySide::CompareWithHeirs() {
  if (slots_.totals().handing_over == 0) return;
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    const OwnedSlot& slot = slots_[local];
    BackedSlot& backed = backups_[local];
    if (!slot.handing_over || !backed.Drained()) continue;
    for (SlotBackup& backup : backed.all) {
      if (backup.server != context_.state().slots[slot.id.value].heir || !backup.waited() || backup.compared)
        continue;
      backup.compared = true;
      if (content_.Bytes(local) > context_.options().bounds.most_compared_bytes) {
        CAIRN_AT_BOUND(kComparedBytes);
        continue;
      }
      wire::OpHeader header = HashOf(local);
      header.committed = slot.index();  // as everybody who is waited for has it
      backup.stream->sender.batch().Add(header, nullptr, {}, {}, {});
      backups_.Shipped(local, backup, false);
    }
  }
  news_.Raise();
}

}  // namespace cairn::server

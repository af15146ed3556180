// Frames of sync rounds: marks, contributions, decisions (docs/internals/consistency.md, rules 15, 16, 18 and
// 32 to 34): checked, recorded, and parked until they can be answered.
#include <cstring>
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

void ShardImpl::OnRoundFrame(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PushView> push = wire::DecodePush(header, request.frame.body());
  if (!push.ok()) return Violation(request.conn, header, push.status());
  if (Status s = slots_.CheckOwner(push->entries, header.state_version, context_.name()); !s.ok()) return outbox_.SendError(request.conn, header, s);
  TableState* table = nullptr;
  if (Status s = tables_.Find(request.table(), &table); !s.ok()) return outbox_.SendError(request.conn, header, s);
  if (table == nullptr) return outbox_.SendError(request.conn, header, DroppedTable(request.table()));
  if (!table->sync()) return outbox_.SendError(request.conn, header, WrongMode(table->info.spec, "a contribution"));
  const bool marks = header.type == wire::FrameType::kDone || request.has(wire::kFlagDone);
  const bool decides = push->params.has(wire::kParamDecide);
  if (!decides) GiveUpSummedUp(request, *table);
  if (Status s = CheckRound(request, *table, *push, marks); !s.ok())
    return outbox_.SendError(request.conn, header, s);

  // Early parts may move the frame's memory out of the request; it stays alive until the end.
  std::shared_ptr<KeptFrame> kept;
  Status staged;
  if (header.type == wire::FrameType::kContribute) staged = StageParts(request, *table, *push, &kept);
  if (staged.ok()) {
    // A joined worker agrees to what the others decide.
    if (decides && !push->params.has(wire::kParamJoined)) {
      table->rounds.marks().Decide(request.incarnation(), request.round(), Decision::Of(push->params));
    } else if (marks && !decides) {
      table->rounds.marks().Record(request.incarnation(), request.round(), push->params, push->done_bitmap);
    }
    AwaitRound(request, *table, *push, marks);
  } else {
    outbox_.SendError(request.conn, header, staged);
  }
  if (marks) {
    Reconsider(*table);
  } else {
    Reconsider(*table, push->entries);
  }
}

// A worker whose first phase ended badly at another slot does not come back to decide: its next
// round says that it gives this one up.
void ShardImpl::GiveUpSummedUp(const Request& request, TableState& table) {
  if (!table.rounds.AnySummedUp() || table.rounds.lowest_open().Next() != request.round()) return;
  Decision skip;
  skip.skip = true;
  table.rounds.marks().Decide(request.incarnation(), table.rounds.lowest_open(), skip);
  Reconsider(table);
}

Status ShardImpl::CheckRound(const Request& request, const TableState& table, const wire::PushView& push,
                             bool marks) const {
  const Round round = request.round();
  auto problem = [&](Code code, const std::string& what) {
    return Status(
        code, "round " + std::to_string(round.value) + " of table \"" + table.info.spec.name + "\" " + what);
  };
  const Member* member = table.rounds.marks().Find(request.incarnation());
  if (member == nullptr && request.client->listed) {
    return problem(Code::kUnavailable, "has to wait: rank " + std::to_string(request.client->rank.value) +
                                           " is not in a view yet");
  }
  if (member != nullptr && round < member->first) {
    return problem(Code::kInvalidArgument, "is before round " + std::to_string(member->first.value) +
                                               ", the first of rank " + std::to_string(member->rank.value));
  }
  const bool contributes = request.header().type == wire::FrameType::kContribute;
  if (Status s = CheckRoundParams(table.info.spec, push.params, contributes); !s.ok()) return s;
  const size_t bitmap_bytes = (slots_.slot_count() + 7) / 8;
  if (marks && !push.done_bitmap.empty() && push.done_bitmap.size() < bitmap_bytes) {
    return problem(Code::kProtocol, "has a done bitmap of " + std::to_string(push.done_bitmap.size()) +
                                        " bytes for " + std::to_string(slots_.slot_count()) + " slots");
  }
  for (const wire::SlotEntry& entry : push.entries) {
    const Round open = table.rounds[slots_.LocalOf(entry.slot)].open();
    if (open >= round) continue;
    return problem(Code::kUnavailable, "is not open yet in slot " + std::to_string(entry.slot) +
                                           ", which is in round " + std::to_string(open.value));
  }
  if (marks && !table.rounds.empty() && table.rounds.lowest_open() < round) {
    return problem(Code::kUnavailable, "is not open yet in every slot: some are in round " +
                                           std::to_string(table.rounds.lowest_open().value));
  }
  return Status::Ok();
}

void ShardImpl::AwaitRound(const Request& request, TableState& table, const wire::PushView& push,
                           bool marks) {
  const wire::FrameHeader& header = request.header();
  if (parked_.Adopt(header, request.conn) != nullptr) return;
  ParkedRequest waits;
  waits.conn = request.conn;
  waits.header = header;
  waits.needed = request.round().Next();
  waits.first_phase = push.params.has(wire::kParamTwoPhase);
  waits.every_slot = marks;
  waits.since_us = waits.told_us = request.now_us;
  // Of the frame only what the answer needs is kept: which slots, and the keys if it has values.
  const size_t entry_bytes = push.entries.size_bytes();
  const size_t key_bytes =
      request.has(wire::kFlagPullAfter) && !waits.first_phase ? push.keys.size_bytes() : 0;
  if (!parked_.HasRoom(request.incarnation(), entry_bytes + key_bytes)) {
    return outbox_.SendError(request.conn, header, {Code::kResourceExhausted, "too many requests wait for a round"});
  }
  if (entry_bytes > 0) {
    waits.storage = context_.pool().Get(entry_bytes + key_bytes);
    std::byte* copy = waits.storage.data();
    std::memcpy(copy, push.entries.data(), entry_bytes);
    waits.entries = {reinterpret_cast<const wire::SlotEntry*>(copy), push.entries.size()};
    if (key_bytes > 0) {
      std::memcpy(copy + entry_bytes, push.keys.data(), key_bytes);
      waits.keys = {reinterpret_cast<const RowKey*>(copy + entry_bytes), push.keys.size()};
    }
  }
  ParkedRequest& parked = parked_.Add(std::move(waits));
  if (CAIRN_BUG(kAckAtStaging) && header.type == wire::FrameType::kContribute) return Answer(table, parked);
  AdvanceParked(table, parked);
}

}  // namespace cairn::server

// Parts and done marks of sync rounds (docs/consistency.md, rules 15, 16, 18 and 21): staged once
// per worker, slot and round, and answered when the round is closed.
#include <cstring>
#include <utility>

#include "base/planted.h"
#include "server/shard_impl.h"

namespace cairn::server {

void ShardImpl::OnRoundFrame(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PushView> push = wire::DecodePush(header, request.frame.body());
  if (!push.ok()) return Violation(request.conn, header, push.status());
  if (Status s = CheckOwner(request, push->entries); !s.ok()) return SendError(request.conn, header, s);
  TableState* table = nullptr;
  if (Status s = FindTable(request, &table); !s.ok()) return SendError(request.conn, header, s);
  if (table == nullptr) return SendError(request.conn, header, DroppedTable(request.table()));
  if (!table->sync()) return SendError(request.conn, header, WrongMode(table->info.spec, "a contribution"));
  const bool marks = header.type == wire::FrameType::kDone || request.has(wire::kFlagDone);
  if (Status s = CheckRound(request, *table, *push, marks); !s.ok())
    return SendError(request.conn, header, s);

  // Early parts may move the frame's memory out of the request; it stays alive until the end.
  std::shared_ptr<KeptFrame> kept;
  Status staged;
  if (header.type == wire::FrameType::kContribute) staged = StageParts(request, *table, *push, &kept);
  if (staged.ok()) {
    if (marks) {
      table->marks.Record(request.incarnation(), request.round(), push->params.weight,
                          {push->params.lr, push->params.weight_decay}, push->done_bitmap);
    }
    AwaitRound(request, *table, *push, marks);
  } else {
    SendError(request.conn, header, staged);
  }
  if (marks) {
    Reconsider(*table);
  } else {
    Reconsider(*table, push->entries);
  }
}

Status ShardImpl::CheckRound(const Request& request, const TableState& table, const wire::PushView& push,
                             bool marks) const {
  const Round round = request.round();
  auto problem = [&](Code code, const std::string& what) {
    return Status(
        code, "round " + std::to_string(round.value) + " of table \"" + table.info.spec.name + "\" " + what);
  };
  const Member* member = table.marks.Find(request.incarnation());
  if (member == nullptr && request.client->listed) {
    return problem(Code::kUnavailable, "has to wait: rank " + std::to_string(request.client->rank.value) +
                                           " is not in a view yet");
  }
  if (member != nullptr && round < member->first) {
    return problem(Code::kInvalidArgument, "is before round " + std::to_string(member->first.value) +
                                               ", the first of rank " + std::to_string(member->rank.value));
  }
  if (Status s = CheckHyper(table.info.spec, {push.params.lr, push.params.weight_decay}); !s.ok()) return s;
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
  if (marks && table.at_lowest > 0 && table.lowest_open < round) {
    return problem(Code::kUnavailable, "is not open yet in every slot: some are in round " +
                                           std::to_string(table.lowest_open.value));
  }
  return Status::Ok();
}

Status ShardImpl::StageParts(const Request& request, TableState& table, const wire::PushView& push,
                             std::shared_ptr<KeptFrame>* kept) {
  const Status shape = CheckPushShape(table.info.spec, push, "contribution");
  Status result;
  ForEachPart(&table, push, shape, [&](const Part& part) {
    SlotRound& round = table.rounds[part.local];
    if (request.round() < round.open()) {
      if (CAIRN_BUG(kRoundTwice)) ReopenRound(request, table, push.params, part);
      return;
    }
    if (round.Find(request.client->rank, request.incarnation()) != nullptr) return;  // a copy
    Contribution contribution;
    contribution.incarnation = request.incarnation();
    contribution.rank = request.client->rank;
    contribution.hyper = {push.params.lr, push.params.weight_decay};
    contribution.weight = push.params.weight;
    contribution.refused = CheckPart(&table, shape, part, "contribution");
    if (Status s = StagePart(request, table, part, std::move(contribution), kept); !s.ok()) result = s;
  });
  return result;
}

Status ShardImpl::StagePart(const Request& request, TableState& table, const Part& part,
                            Contribution contribution, std::shared_ptr<KeptFrame>* kept) {
  SlotRound& round = table.rounds[part.local];
  table::SlotTable& rows = *table.rows[part.local];
  const bool refused = !contribution.refused.ok();
  const bool in_order = table.info.spec.deterministic && !CAIRN_BUG(kArrivalOrder);
  if (refused) {
    contribution.weight = 0;
    contribution.folded = true;
  } else {
    contribution.keys = part.keys;
    contribution.values = part.values;
  }
  Contribution& added = round.Add(std::move(contribution));
  if (in_order) {
    // Whoever joins with the pending view may have a lower rank, and its place is before this one.
    if (!table.Held(request.round())) round.FoldInOrder(slots_[part.local].id, table.marks, rows);
  } else if (!refused) {
    round.Fold(added, rows);
  }
  if (!added.folded) {
    Buffer& storage = request.frame.storage;
    if (*kept == nullptr && kept_bytes_ + storage.capacity() > options_.early_contribution_budget &&
        !CAIRN_BUG(kEarlyUnbounded)) {
      round.Remove(request.client->rank, request.incarnation());
      return {Code::kResourceExhausted, "table \"" + table.info.spec.name + "\" is deterministic and rank " +
                                            std::to_string(request.client->rank.value) +
                                            " is early: " + std::to_string(kept_bytes_) +
                                            " bytes wait for their turn already"};
    }
    // The spans stay where they are: a buffer's bytes do not move with it.
    if (*kept == nullptr) *kept = std::make_shared<KeptFrame>(std::move(storage), &kept_bytes_);
    added.kept = *kept;
  }
  if (observer_ != nullptr) {
    observer_->OnStaged(slots_[part.local].id, request.incarnation(), table.info.id, request.round(),
                        added.weight, refused, part.keys, part.values);
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
  waits.every_slot = marks;
  waits.told_us = request.now_us;
  // Of the frame only what the answer needs is kept: which slots, and the keys if it has values.
  const size_t entry_bytes = push.entries.size_bytes();
  const size_t key_bytes = request.has(wire::kFlagPullAfter) ? push.keys.size_bytes() : 0;
  if (!parked_.HasRoom(request.incarnation(), entry_bytes + key_bytes)) {
    return SendError(request.conn, header, {Code::kResourceExhausted, "too many requests wait for a round"});
  }
  if (entry_bytes > 0) {
    waits.storage = pool_.Get(entry_bytes + key_bytes);
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

// What a server without rule 15 would do with a late copy: the round is applied a second time.
void ShardImpl::ReopenRound(const Request& request, TableState& table, const wire::PushParams& params,
                            const Part& part) {
  table::SlotTable& rows = *table.rows[part.local];
  const SlotRound& round = table.rounds[part.local];
  if (request.round().Next() != round.open() || rows.staged() || !(params.weight > 0)) return;
  if (!rows.Check(part.keys, part.values).ok()) return;
  const Hyper hyper{params.lr, params.weight_decay};
  rows.Stage(part.keys, part.values, params.weight);
  rows.ApplyStaged(hyper, params.weight);
  const Position position = slots_[part.local].NextPosition();
  if (observer_ == nullptr) return;
  CloseRecord record{
      table.info.id, slots_[part.local].id, request.round(), version(), {}, params.weight, hyper, Code::kOk,
      position};
  record.contributors.push_back(
      {request.incarnation(), request.client->rank, params.weight, /*live=*/true, /*gradient=*/true, false});
  observer_->OnClosed(record);
}

}  // namespace cairn::server

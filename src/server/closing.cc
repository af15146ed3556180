// Which rounds close, and who is answered then (docs/consistency.md, rules 17 to 19).
#include <algorithm>

#include "server/shard_impl.h"

namespace cairn::server {

// Cheap for the table as a whole: most marks and contributions close nothing.
bool ShardImpl::NothingToDo(const TableState& table) const {
  return !table.info.spec.deterministic && table.marks.Lacks(table.lowest_open);
}

void ShardImpl::Reconsider(TableState& table) {
  if (NothingToDo(table)) return;
  const Round lowest_before = table.lowest_open;
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].owned) CloseWhatMay(table, local);
  Wake(table, lowest_before);
}

void ShardImpl::Reconsider(TableState& table, std::span<const wire::SlotEntry> entries) {
  if (NothingToDo(table)) return;
  const Round lowest_before = table.lowest_open;
  for (const wire::SlotEntry& entry : entries) CloseWhatMay(table, slots_.LocalOf(entry.slot));
  Wake(table, lowest_before);
}

void ShardImpl::CloseWhatMay(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const SlotId slot = slots_[local].id;
  if (round.HasUnfolded() && !table.Held(round.open())) {
    round.FoldInOrder(slot, table.marks, *table.rows[local]);
  }
  // One close may allow the next, where nobody is awaited in it; a later start bounds that.
  bool closed = false;
  while (!table.Held(round.open()) && round.MayClose(slot, table.marks, table.latest_start)) {
    CloseOnce(table, local);
    closed = true;
  }
  if (closed) closed_slots_.push_back(local);
}

void ShardImpl::CloseOnce(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const Round closing = round.open();
  const uint32_t was_unclean = round.unclean();
  SlotRound::Closed closed = round.Close(table.info, table.marks, *table.rows[local], observer_ != nullptr);
  table.unclean_slots = table.unclean_slots - was_unclean + round.unclean();
  const Position position = slots_[local].NextPosition();
  if (closing == table.highest_open) {
    table.highest_open = closing.Next();
    ++stats_.rounds;
  }
  if (closing == table.lowest_open && --table.at_lowest == 0) RecountOpen(table);
  if (observer_ == nullptr) return;
  observer_->OnClosed(CloseRecord{table.info.id, slots_[local].id, closing, version(),
                                  std::move(closed.contributors), closed.divisor, closed.hyper,
                                  closed.outcome.code(), position});
}

void ShardImpl::Wake(TableState& table, Round lowest_before) {
  woken_.clear();
  auto take = [&](std::vector<ParkedId>& waiting) {
    woken_.insert(woken_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  };
  for (uint32_t local : closed_slots_) take(table.rounds[local].waiting);
  closed_slots_.clear();
  if (table.lowest_open > lowest_before) take(table.waiting_for_all);
  for (ParkedId id : woken_)
    if (ParkedRequest* request = parked_.Find(id)) AdvanceParked(table, *request);
}

void ShardImpl::AdvanceParked(TableState& table, ParkedRequest& request) {
  if (request.every_slot) {
    if (table.at_lowest > 0 && table.lowest_open < request.needed)
      return table.waiting_for_all.push_back(request.id);
  } else {
    for (; request.next < request.entries.size(); ++request.next) {
      SlotRound& round = table.rounds[slots_.LocalOf(request.entries[request.next].slot)];
      if (round.open() < request.needed) return round.waiting.push_back(request.id);
    }
  }
  Answer(table, request);
}

void ShardImpl::Answer(TableState& table, ParkedRequest& request) {
  if (request.conn != ConnId{}) {
    if (request.header.type == wire::FrameType::kPull) {
      SendValues(request.conn, request.header, wire::FrameType::kPullReply, table, request.entries,
                 request.keys);
    } else {
      AnswerRound(table, request);
    }
  }
  parked_.Remove(request.id);
}

void ShardImpl::AnswerRound(TableState& table, const ParkedRequest& request) {
  const wire::FrameHeader& header = request.header;
  problems_.clear();
  auto look = [&](uint32_t local) {
    const Status outcome =
        table.rounds[local].OutcomeFor(Incarnation{header.incarnation}, Round{header.round});
    if (!outcome.ok()) AddProblem(slots_[local].id.value, outcome.code(), 0, outcome.message());
  };
  if (table.unclean_slots > 0 && request.every_slot) {
    for (uint32_t local = 0; local < slots_.size(); ++local)
      if (slots_[local].owned) look(local);
    std::sort(problems_.begin(), problems_.end(), [](auto& a, auto& b) { return a.slot < b.slot; });
  } else if (table.unclean_slots > 0) {
    for (const wire::SlotEntry& entry : request.entries) look(slots_.LocalOf(entry.slot));
  }
  if (!problems_.empty()) {
    return Send(request.conn, wire::EncodeRoundRefusal(header, problems_, problem_text_, pool_));
  }
  if ((header.flags & wire::kFlagPullAfter) != 0) {
    return SendValues(request.conn, header, wire::FrameType::kRoundReply, table, request.entries,
                      request.keys);
  }
  wire::DataParts parts;
  parts.type = wire::FrameType::kRoundReply;
  parts.request_id = header.request_id;
  parts.incarnation = Incarnation{header.incarnation};
  parts.state_version = version();
  parts.round = Round{header.round};
  parts.table = table.info.id;
  Send(request.conn, wire::EncodeData(std::move(parts), pool_));
}

}  // namespace cairn::server

// Which rounds are summed up or close, and whose wait is over then (docs/internals/consistency.md, rules 17
// to 19, 33 and 34).
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

// Cheap for the table as a whole: most marks, contributions and decisions close nothing.
bool ShardImpl::NothingToDo(const TableState& table) const {
  if (table.info.spec.deterministic) return false;
  // A slot that came here summed up needs decisions, not marks: those may have gone to its old primary.
  if (table.summed_at_lowest == 0 && table.marks.Lacks(table.lowest_open)) return true;
  return table.AllSummedUp() && table.marks.LacksDecision(table.lowest_open) && !CAIRN_BUG(kDecideEarly);
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
  bool moved = false;
  while (!table.Held(round.open())) {
    const SlotRound::Step step = round.NextStep(slot, table.marks, table.latest_start);
    if (step == SlotRound::Step::kWait) break;
    if (step == SlotRound::Step::kSumUp) {
      SumUp(table, local);
    } else {
      CloseOnce(table, local);
    }
    moved = true;
  }
  if (moved) moved_slots_.push_back(local);
}

void ShardImpl::SumUp(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const bool want_contributors = context_.observer() != nullptr || !slots_[local].backups.empty();
  const SlotRound::Summed& summed =
      round.SumUp(table.info, table.marks, *table.rows[local], want_contributors);
  if (round.open() == table.lowest_open) ++table.summed_at_lowest;
  const Position position = slots_[local].NextPosition();
  ShipSumUp(table, local);
  if (context_.observer() == nullptr) return;
  context_.observer()->OnSummedUp(table.info.id, slots_[local].id, round.open(), summed.divisor, summed.contributors,
                        position);
}

void ShardImpl::CloseOnce(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const Round closing = round.open();
  const uint32_t was_unclean = round.unclean(), was_joined = round.all_joined();
  const uint32_t was_summed = round.summed() != nullptr;
  table::SlotTable& rows = *table.rows[local];
  SlotRound::Closed closed = round.Decide(table.info, table.marks, rows, context_.observer() != nullptr);
  const Position position = slots_[local].NextPosition();
  ShipClose(table, local, closed);
  round.Close(closing, closed, rows);
  table.unclean_slots = table.unclean_slots - was_unclean + round.unclean();
  table.joined_slots = table.joined_slots - was_joined + round.all_joined();
  if (closing == table.highest_open) {
    table.highest_open = closing.Next();
    ++stats_.rounds;
  }
  if (closing == table.lowest_open) {
    table.summed_at_lowest -= was_summed;
    if (--table.at_lowest == 0) RecountOpen(table);
  }
  if (context_.observer() == nullptr) return;
  context_.observer()->OnClosed(CloseRecord{table.info.id, slots_[local].id, closing, context_.version(),
                                  std::move(closed.contributors), closed.divisor, closed.hyper,
                                  closed.outcome.code(), position, closed.op, closed.column, closed.scale,
                                  closed.two_phase, closed.skipped, closed.all_joined, closed.report});
}

void ShardImpl::Wake(TableState& table, Round lowest_before) {
  woken_.clear();
  auto take = [&](std::vector<ParkedId>& waiting) {
    woken_.insert(woken_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  };
  for (uint32_t local : moved_slots_) take(table.rounds[local].waiting);
  moved_slots_.clear();
  const bool risen = table.lowest_open > lowest_before;
  if (risen) take(table.waiting_for_all);
  if (risen || table.AllSummedUp()) take(table.waiting_for_reports);
  for (ParkedId id : woken_)
    if (ParkedRequest* request = parked_.Find(id)) AdvanceParked(table, *request);
}

bool ShardImpl::Reached(const SlotRound& round, const ParkedRequest& request) {
  return round.open() >= request.needed ||
         (request.first_phase && round.open().Next() == request.needed && round.summed() != nullptr);
}

void ShardImpl::AdvanceParked(TableState& table, ParkedRequest& request) {
  if (request.every_slot) {
    if (!table.AllReached(request.needed, request.first_phase)) {
      auto& waiting = request.first_phase ? table.waiting_for_reports : table.waiting_for_all;
      return waiting.push_back(request.id);
    }
  } else {
    for (; request.next < request.entries.size(); ++request.next) {
      SlotRound& round = table.rounds[slots_.LocalOf(request.entries[request.next].slot)];
      if (!Reached(round, request)) return round.waiting.push_back(request.id);
    }
  }
  Answer(table, request);
}

}  // namespace cairn::server

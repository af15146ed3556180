// Which rounds are summed up or close, and whose wait is over then (docs/internals/consistency.md, rules 17
// to 19, 33 and 34).
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

bool ShardImpl::NothingToDo(const TableState& table) const {
  return !table.info.spec.deterministic && table.rounds.NothingCloses();
}

void ShardImpl::Reconsider(TableState& table) {
  if (NothingToDo(table)) return;
  const Round lowest_before = table.rounds.lowest_open();
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].owned) CloseWhatMay(table, local);
  Wake(table, lowest_before);
}

void ShardImpl::Reconsider(TableState& table, std::span<const wire::SlotEntry> entries) {
  if (NothingToDo(table)) return;
  const Round lowest_before = table.rounds.lowest_open();
  for (const wire::SlotEntry& entry : entries) CloseWhatMay(table, slots_.LocalOf(entry.slot));
  Wake(table, lowest_before);
}

void ShardImpl::CloseWhatMay(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const SlotId slot = slots_[local].id;
  if (round.HasUnfolded() && !table.rounds.Held(round.open())) {
    round.FoldInOrder(slot, table.rounds.marks(), *table.rows[local]);
  }
  // One close may allow the next, where nobody is awaited in it; a later start bounds that.
  bool moved = false;
  while (!table.rounds.Held(round.open())) {
    const SlotRound::Step step = round.NextStep(slot, table.rounds.marks(), table.rounds.latest_start());
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
  const bool want_contributors = context_.observer() != nullptr || primary_side_.Backed(local);
  const SlotRound::Summed& summed =
      table.rounds.SumUp(local, table.info, *table.rows[local], want_contributors);
  const Position position = slots_[local].NextPosition();
  primary_side_.ShipSumUp(table.info.id, table.rounds[local], *table.rows[local], local);
  if (context_.observer() == nullptr) return;
  context_.observer()->OnSummedUp(table.info.id, slots_[local].id, table.rounds[local].open(), summed.divisor,
                                  summed.contributors, position);
}

void ShardImpl::CloseOnce(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const Round closing = round.open();
  table::SlotTable& rows = *table.rows[local];
  SlotRound::Closed closed =
      round.Decide(table.info, table.rounds.marks(), rows, context_.observer() != nullptr);
  const Position position = slots_[local].NextPosition();
  primary_side_.ShipClose(table.info.id, round, closed, rows, local);
  if (table.rounds.Close(local, closed, rows, slots_)) ++stats_.rounds;
  if (context_.observer() == nullptr) return;
  context_.observer()->OnClosed(CloseRecord{
      table.info.id, slots_[local].id, closing, context_.version(), std::move(closed.contributors),
      closed.divisor, closed.hyper, closed.outcome.code(), position, closed.op, closed.column, closed.scale,
      closed.two_phase, closed.skipped, closed.all_joined, closed.report});
}

void ShardImpl::Wake(TableState& table, Round lowest_before) {
  woken_.clear();
  table.rounds.TakeWoken(moved_slots_, lowest_before, &woken_);
  moved_slots_.clear();
  for (ParkedId id : woken_)
    if (ParkedRequest* request = parked_.Find(id)) AdvanceParked(table, *request);
}

bool ShardImpl::Reached(const SlotRound& round, const ParkedRequest& request) {
  return round.open() >= request.needed ||
         (request.first_phase && round.open().Next() == request.needed && round.summed() != nullptr);
}

void ShardImpl::AdvanceParked(TableState& table, ParkedRequest& request) {
  if (request.every_slot) {
    if (!table.rounds.AllReached(request.needed, request.first_phase)) {
      return table.rounds.WaitForAll(request.id, request.first_phase);
    }
  } else {
    for (; request.next < request.entries.size(); ++request.next) {
      const uint32_t local = slots_.LocalOf(request.entries[request.next].slot);
      if (!Reached(table.rounds[local], request)) return table.rounds.WaitAt(local, request.id);
    }
  }
  Answer(table, request);
}

}  // namespace cairn::server

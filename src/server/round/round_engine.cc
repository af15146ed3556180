#include "server/round/round_engine.h"

#include <cstring>
#include <utility>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "server/slots/refusal_texts.h"

namespace cairn::server {
namespace {
// What the values are multiplied by in the sum. A table that sums takes them as they are, but for
// an assign, which is a mean everywhere.
double FactorOf(const TableSpec& spec, const wire::PushParams& params) {
  const bool sum = spec.optimizer == OptimizerKind::kSum && params.op == 0;
  return sum ? params.value_scale : params.weight * params.value_scale;
}
}  // namespace

Status RoundEngine::OnFrame(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PushView> push = wire::DecodePush(header, request.frame.body());
  if (!push.ok()) return push.status();
  TableState* table = nullptr;
  Status problem = slots_.CheckOwner(push->entries, header.state_version, context_.name());
  if (problem.ok()) problem = tables_.Find(request.table(), &table);
  if (problem.ok() && table == nullptr) problem = DroppedTable(request.table());
  if (problem.ok() && !table->sync()) problem = WrongMode(table->info.spec, "a contribution");
  const bool marks = header.type == wire::FrameType::kDone || request.has(wire::kFlagDone);
  const bool decides = push->params.has(wire::kParamDecide);
  if (problem.ok()) {
    if (!decides) GiveUpSummedUp(request, *table);
    problem = CheckRound(request, *table, *push, marks);
  }
  if (!problem.ok()) {
    outbox_.SendError(request.conn, header, problem);
    return Status::Ok();
  }

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
    Await(request, *table, *push, marks);
  } else {
    outbox_.SendError(request.conn, header, staged);
  }
  if (marks) {
    Reconsider(*table);
  } else {
    Reconsider(*table, push->entries);
  }
  return Status::Ok();
}

void RoundEngine::OnState() {
  for (auto& [id, table] : tables_.all())
    if (table.sync()) Reconsider(table);
}

// A worker whose first phase ended badly at another slot does not come back to decide: its next
// round says that it gives this one up.
void RoundEngine::GiveUpSummedUp(const Request& request, TableState& table) {
  if (!table.rounds.AnySummedUp() || table.rounds.lowest_open().Next() != request.round()) return;
  Decision skip;
  skip.skip = true;
  table.rounds.marks().Decide(request.incarnation(), table.rounds.lowest_open(), skip);
  Reconsider(table);
}

Status RoundEngine::CheckRound(const Request& request, const TableState& table, const wire::PushView& push,
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

// Of the frame only what the answer needs is kept: which slots, and the keys if it has values.
void RoundEngine::Await(const Request& request, TableState& table, const wire::PushView& push, bool marks) {
  const wire::FrameHeader& header = request.header();
  if (waits_.Adopt(header, request.conn)) return;
  ParkedRequest parked;
  parked.conn = request.conn;
  parked.header = header;
  parked.needed = request.round().Next();
  parked.first_phase = push.params.has(wire::kParamTwoPhase);
  parked.every_slot = marks;
  const size_t entry_bytes = push.entries.size_bytes();
  const size_t key_bytes =
      request.has(wire::kFlagPullAfter) && !parked.first_phase ? push.keys.size_bytes() : 0;
  if (!waits_.CheckRoom(header, request.conn, entry_bytes + key_bytes)) return;
  if (entry_bytes > 0) {
    parked.storage = context_.pool().Get(entry_bytes + key_bytes);
    std::byte* copy = parked.storage.data();
    std::memcpy(copy, push.entries.data(), entry_bytes);
    parked.entries = {reinterpret_cast<const wire::SlotEntry*>(copy), push.entries.size()};
    if (key_bytes > 0) {
      std::memcpy(copy + entry_bytes, push.keys.data(), key_bytes);
      parked.keys = {reinterpret_cast<const RowKey*>(copy + entry_bytes), push.keys.size()};
    }
  }
  waits_.Await(table, std::move(parked));
}

Status RoundEngine::StageParts(const Request& request, TableState& table, const wire::PushView& push,
                               std::shared_ptr<KeptFrame>* kept) {
  const Status shape = CheckPushShape(table.info.spec, push, "contribution");
  Status result;
  ForEachPart(slots_, &table, push, shape, [&](const Part& part) {
    SlotRound& round = table.rounds[part.local];
    if (request.round() < round.open()) {
      if (CAIRN_BUG(kRoundTwice)) ReopenRound(request, table, push.params, part);
      return;
    }
    if (round.contributions().Find(request.client->rank, request.incarnation()) != nullptr) return;  // a copy
    if (round.summed() != nullptr) {
      result = {Code::kInvalidArgument, "round " + std::to_string(request.round().value) + " of table \"" +
                                            table.info.spec.name + "\" is summed up in slot " +
                                            std::to_string(part.entry.slot) + ": the done mark of rank " +
                                            std::to_string(request.client->rank.value) +
                                            " has to name this slot"};
      return;
    }
    Contribution contribution;
    contribution.incarnation = request.incarnation();
    contribution.rank = request.client->rank;
    contribution.terms = RoundTerms::Of(push.params);
    contribution.not_finite = push.params.has(wire::kParamNotFinite);
    contribution.weight = push.params.weight;
    contribution.factor = FactorOf(table.info.spec, push.params);
    contribution.refused = CheckPart(&table, shape, push.params, part, "contribution");
    if (Status s = StagePart(request, table, part, std::move(contribution), kept); !s.ok()) result = s;
  });
  return result;
}

Status RoundEngine::StagePart(const Request& request, TableState& table, const Part& part,
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
    contribution.mask = CAIRN_BUG(kMaskIgnored) ? table::Mask() : part.mask;
  }
  CountPush(slots_[part.local], &table, part);
  Contribution& added = round.contributions().Add(std::move(contribution));
  if (in_order) {
    // Whoever joins with the pending view may have a lower rank, and its place is before this one.
    if (!table.rounds.Held(request.round()))
      round.contributions().FoldInOrder(round.open(), slots_[part.local].id, table.rounds.marks(), rows);
  } else if (!refused) {
    round.contributions().Fold(added, rows);
  }
  if (!added.folded) {
    Buffer& storage = request.frame.storage;
    const uint64_t budget = context_.options().early_contribution_budget;
    if (*kept == nullptr && tables_.early_bytes() + storage.capacity() > budget &&
        !CAIRN_BUG(kEarlyUnbounded)) {
      CAIRN_AT_BOUND(kEarlyBytes);
      round.contributions().Remove(request.client->rank, request.incarnation());
      return {Code::kResourceExhausted, "table \"" + table.info.spec.name + "\" is deterministic and rank " +
                                            std::to_string(request.client->rank.value) +
                                            " is early: " + std::to_string(tables_.early_bytes()) +
                                            " bytes wait for their turn already"};
    }
    // The spans stay where they are: a buffer's bytes do not move with it.
    if (*kept == nullptr) *kept = std::make_shared<KeptFrame>(std::move(storage), &tables_.early_bytes());
    added.kept = *kept;
  }
  if (context_.observer() != nullptr) {
    context_.observer()->OnStaged(slots_[part.local].id, request.incarnation(), table.info.id,
                                  request.round(), added.weight, refused, part.keys, part.values);
  }
  return Status::Ok();
}

// What a server without rule 15 would do with a late copy: the round is applied a second time.
void RoundEngine::ReopenRound(const Request& request, TableState& table, const wire::PushParams& params,
                              const Part& part) {
  table::SlotTable& rows = *table.rows[part.local];
  const SlotRound& round = table.rounds[part.local];
  if (request.round().Next() != round.open() || rows.staged() || !(params.weight > 0)) return;
  if (params.op != 0 || !rows.Check(part.keys, part.values, part.mask).ok()) return;
  const Hyper hyper = params.hyper();
  rows.Stage(part.keys, part.values, part.mask, FactorOf(table.info.spec, params));
  rows.ApplyStaged(hyper, params.weight, 1.0);
  const Position position = slots_[part.local].NextPosition();
  if (context_.observer() == nullptr) return;
  CloseRecord record{table.info.id,
                     slots_[part.local].id,
                     request.round(),
                     context_.version(),
                     {},
                     params.weight,
                     hyper,
                     Code::kOk,
                     position};
  record.contributors.push_back(
      {request.incarnation(), request.client->rank, params.weight, /*live=*/true, /*gradient=*/true, false});
  context_.observer()->OnClosed(record);
}

// Cheap for the table as a whole: most marks, contributions and decisions close nothing.
bool RoundEngine::NothingToDo(const TableState& table) {
  return !table.info.spec.deterministic && table.rounds.NothingCloses();
}

void RoundEngine::Reconsider(TableState& table) {
  if (NothingToDo(table)) return;
  const Round lowest_before = table.rounds.lowest_open();
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].owned) CloseWhatMay(table, local);
  Wake(table, lowest_before);
}

void RoundEngine::Reconsider(TableState& table, std::span<const wire::SlotEntry> entries) {
  if (NothingToDo(table)) return;
  const Round lowest_before = table.rounds.lowest_open();
  for (const wire::SlotEntry& entry : entries) CloseWhatMay(table, slots_.LocalOf(entry.slot));
  Wake(table, lowest_before);
}

void RoundEngine::CloseWhatMay(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const SlotId slot = slots_[local].id;
  if (round.contributions().HasUnfolded() && !table.rounds.Held(round.open())) {
    round.contributions().FoldInOrder(round.open(), slot, table.rounds.marks(), *table.rows[local]);
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
  if (moved) moved_.push_back(local);
}

void RoundEngine::SumUp(TableState& table, uint32_t local) {
  const bool want_contributors = context_.observer() != nullptr || primary_side_.Backed(local);
  const SlotRound::Summed& summed =
      table.rounds.SumUp(local, table.info, *table.rows[local], want_contributors);
  const Position position = slots_[local].NextPosition();
  primary_side_.ShipSumUp(table.info.id, table.rounds[local], *table.rows[local], local);
  if (context_.observer() == nullptr) return;
  context_.observer()->OnSummedUp(table.info.id, slots_[local].id, table.rounds[local].open(), summed.divisor,
                                  summed.contributors, position);
}

void RoundEngine::CloseOnce(TableState& table, uint32_t local) {
  SlotRound& round = table.rounds[local];
  const Round closing = round.open();
  table::SlotTable& rows = *table.rows[local];
  ClosedRound closed = round.Decide(table.info, table.rounds.marks(), rows, context_.observer() != nullptr);
  const Position position = slots_[local].NextPosition();
  primary_side_.ShipClose(table.info.id, round, closed, rows, local);
  if (table.rounds.Close(local, closed, rows, slots_)) ++rounds_;
  if (context_.observer() == nullptr) return;
  context_.observer()->OnClosed(CloseRecord{
      table.info.id, slots_[local].id, closing, context_.version(), std::move(closed.contributors),
      closed.divisor, closed.hyper, closed.outcome.code(), position, closed.op, closed.column, closed.scale,
      closed.two_phase, closed.skipped, closed.all_joined, closed.report});
}

void RoundEngine::Wake(TableState& table, Round lowest_before) {
  CAIRN_CHECK(table.rounds.lowest_open() >= lowest_before);
  waits_.Wake(table, moved_, lowest_before);
  moved_.clear();
}

}  // namespace cairn::server

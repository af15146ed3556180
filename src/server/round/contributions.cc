// The parts of contributions to sync rounds (docs/internals/consistency.md, rules 15, 21 and 30): staged once
// per worker, slot and round, as one unit.
#include <utility>

#include "base/bounds.h"
#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {
namespace {

// What the values are multiplied by in the sum. A table that sums takes them as they are, but for
// an assign, which is a mean everywhere.
double FactorOf(const TableSpec& spec, const wire::PushParams& params) {
  const bool sum = spec.optimizer == OptimizerKind::kSum && params.op == 0;
  return sum ? params.value_scale : params.weight * params.value_scale;
}

}  // namespace

Status ShardImpl::StageParts(const Request& request, TableState& table, const wire::PushView& push,
                             std::shared_ptr<KeptFrame>* kept) {
  const Status shape = CheckPushShape(table.info.spec, push, "contribution");
  Status result;
  ForEachPart(slots_, &table, push, shape, [&](const Part& part) {
    SlotRound& round = table.rounds[part.local];
    if (request.round() < round.open()) {
      if (CAIRN_BUG(kRoundTwice)) ReopenRound(request, table, push.params, part);
      return;
    }
    if (round.Find(request.client->rank, request.incarnation()) != nullptr) return;  // a copy
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
    contribution.mask = CAIRN_BUG(kMaskIgnored) ? table::Mask() : part.mask;
  }
  CountPush(slots_[part.local], &table, part);
  Contribution& added = round.Add(std::move(contribution));
  if (in_order) {
    // Whoever joins with the pending view may have a lower rank, and its place is before this one.
    if (!table.rounds.Held(request.round())) round.FoldInOrder(slots_[part.local].id, table.rounds.marks(), rows);
  } else if (!refused) {
    round.Fold(added, rows);
  }
  if (!added.folded) {
    Buffer& storage = request.frame.storage;
    if (*kept == nullptr && tables_.early_bytes() + storage.capacity() > context_.options().early_contribution_budget &&
        !CAIRN_BUG(kEarlyUnbounded)) {
      CAIRN_AT_BOUND(kEarlyBytes);
      round.Remove(request.client->rank, request.incarnation());
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
    context_.observer()->OnStaged(slots_[part.local].id, request.incarnation(), table.info.id, request.round(),
                        added.weight, refused, part.keys, part.values);
  }
  return Status::Ok();
}

// What a server without rule 15 would do with a late copy: the round is applied a second time.
void ShardImpl::ReopenRound(const Request& request, TableState& table, const wire::PushParams& params,
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
  CloseRecord record{
      table.info.id, slots_[part.local].id, request.round(), context_.version(), {}, params.weight, hyper, Code::kOk,
      position};
  record.contributors.push_back(
      {request.incarnation(), request.client->rank, params.weight, /*live=*/true, /*gradient=*/true, false});
  context_.observer()->OnClosed(record);
}

}  // namespace cairn::server

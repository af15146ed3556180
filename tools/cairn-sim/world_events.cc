// What the shards say they do, on its way to the checkers: every operation gets its place in the
// history, and where a new primary lacks a part of the line, the checkers forget it.
#include <utility>

#include "world.h"

namespace cairn::sim {

namespace {
std::string OpWords(const Op& op) {
  std::string text = "slot " + std::to_string(op.slot.value) + " (" + std::to_string(op.position.epoch()) +
                     ", " + std::to_string(op.position.index()) + ") table " + std::to_string(op.table.value);
  if (op.kind == Op::Kind::kPush) {
    return text + (op.outcome == server::Outcome::kApplied ? " push " : " refused ") +
           std::to_string(op.incarnation.value) + "#" + std::to_string(op.seq.value);
  }
  text += (op.kind == Op::Kind::kSumUp ? " sum of round " : " close of round ") +
          std::to_string(op.round.value) + " with";
  for (const server::Contributor& c : op.contributors)
    text += " " + std::to_string(c.incarnation.value) + (c.gradient ? "" : "-");
  return text;
}
}  // namespace

void World::TellOperation(Op op) {
  const SlotId slot = op.slot;
  const Op* added = context_.history.Add(std::move(op));
  if (added == nullptr) return;
  if (trace_.printing()) {
    const bool line = context_.history.IsLine(slot, added->position.epoch());
    Log("history", OpWords(*added) + (line ? "" : ", without a mandate"));
  }
  Tell([&](Checker& c) { c.OnOperation(*added); });
  if (context_.history.IsLine(slot, added->position.epoch())) TellLine(*added);
}

void World::TellLine(const Op& op) {
  switch (op.kind) {
    case Op::Kind::kPush: {
      auto& positions = context_.positions[{op.incarnation.value, op.slot.value}];
      if (positions.size() < op.seq.value) positions.resize(op.seq.value);
      positions[op.seq.value - 1] = op.position;
      const PushEvent event{op.shard, op.slot, op.incarnation, op.seq,   op.table,   op.outcome,
                            op.code,  op.keys, op.values,      op.hyper, op.position};
      return Tell([&](Checker& c) { c.OnPush(event); });
    }
    case Op::Kind::kSumUp: {
      const SummedUpEvent event{op.shard,   op.slot,         op.table, op.round,
                                op.divisor, op.contributors, op.staged};
      return Tell([&](Checker& c) { c.OnSummedUp(event); });
    }
    case Op::Kind::kClose:
      if (!context_.replaying) ++outcome_.rounds;
      return Tell([&](Checker& c) { c.OnClosed(op.shard, *op.record); });
  }
}

// A duplicate, a gap, a push of a retired worker: it has no place in the order.
void World::TellUndecided(const PushEvent& event, uint64_t epoch) {
  if (epoch == 0 || context_.history.IsLine(event.slot, epoch)) Tell([&](Checker& c) { c.OnPush(event); });
}

namespace {
StagedEvent EventOf(const StagedPart& p) {
  return {p.shard, p.slot, p.incarnation, p.table, p.round, p.weight, p.refused, p.keys, p.values};
}
}  // namespace

void World::TellStaged(uint64_t epoch, StagedPart part) {
  if (context_.history.IsLine(part.slot, epoch)) {
    const StagedEvent event = EventOf(part);
    Tell([&](Checker& c) { c.OnStaged(event); });
  }
  context_.history.Stage(epoch, std::move(part));
}

void World::TellPromoted(const ShardName& shard, SlotId slot, uint64_t epoch, Position held, bool goes_on) {
  context_.led[{shard, slot.value}] = epoch;
  Tell([&](Checker& c) { c.OnPromoted(shard, slot, epoch, held); });
  const bool had_staged = !context_.history.Pending(slot).empty();
  const auto [lost, regained] = context_.history.Begin(slot, epoch, held, shard);
  if (epoch > 1) ++outcome_.promotions;
  if (lost) ++outcome_.lines_cut;
  if (goes_on) context_.history.KeepStaged(slot, epoch);
  // What was only staged is gone, too.
  if (lost || regained || had_staged) Replay(slot);
  if (trace_.printing()) {
    Log("history", "slot " + std::to_string(slot.value) + " epoch " + std::to_string(epoch) + " by " +
                       ToString(shard) + " from (" + std::to_string(held.epoch()) + ", " +
                       std::to_string(held.index()) + ")" + (lost ? ", the line is cut" : ""));
  }
}

void World::Replay(SlotId slot) {
  context_.replaying = true;
  for (auto& [stream, positions] : context_.positions)
    if (stream.second == slot.value) positions.clear();
  Tell([&](Checker& c) { c.ForgetSlot(slot); });
  context_.history.ForEach(slot, [&](const Op& op) {
    for (const StagedPart& part : op.staged) {
      const StagedEvent event = EventOf(part);
      Tell([&](Checker& c) { c.OnStaged(event); });
    }
    TellLine(op);
  });
  for (const StagedPart* part : context_.history.Pending(slot)) {
    const StagedEvent event = EventOf(*part);
    Tell([&](Checker& c) { c.OnStaged(event); });
  }
  context_.replaying = false;
}

}  // namespace cairn::sim

// Nothing is told before it is committed: whenever a shard answers a worker, every owner on record
// that is in sync has what the answer says, in its memory (docs/internals/consistency.md, rule 41). And what
// a worker has been told stays true, whoever becomes primary.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkers.h"
#include "violation_text.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

// What the checkers of answers have in common.
class AnswerChecker : public Checker {
 public:
  using Checker::Checker;

 protected:
  // `sender` tells of the operation at `index`: whoever could be promoted must have it.
  void CheckOwners(const ShardName& sender, SlotId slot, uint64_t index, const std::string& what) {
    const Position at = Position::Of(context_.EpochLed(sender, slot), index);
    for (const ShardName& owner : context_.InSync(slot)) {
      if (owner == sender) continue;
      const Position held = context_.Received(owner, slot);
      if (context_.history.Holds(slot, held, at)) continue;
      return Violation(what + " is told by " + ToString(sender) + ", and " + ToString(owner) +
                       ", which is in sync, has " + Words(slot, held) + " instead of " + Words(slot, at));
    }
    CheckEnough(sender, slot, what);
    Position& told = context_.told[slot.value];
    if (index > told.index()) told = Position::Of(context_.history.MadeIn(slot, at), index);
  }

 private:
  void CheckEnough(const ShardName& sender, SlotId slot, const std::string& what) {
    const auto& state = context_.shard_states[sender];
    if (!state || state->min_in_sync < 2 || state->slots[slot.value].server != sender.server) return;
    uint32_t in_sync = 1;
    for (const wire::Backup& backup : state->slots[slot.value].backups) in_sync += backup.in_sync;
    if (in_sync < state->min_in_sync) {
      Violation(what + " is told by " + ToString(sender) + " with " + std::to_string(in_sync) +
                " owners in sync, at least " + std::to_string(state->min_in_sync) + " are wanted");
    }
  }
};

class EarlyAck final : public AnswerChecker {
 public:
  explicit EarlyAck(Context& context) : AnswerChecker("early-ack", context) {}

  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    if (from.role == wire::Role::kWorker) return Remember(header, body);
    const ShardName* sender = context_.NameOf(from);
    if (from.role != wire::Role::kServer || sender == nullptr) return;
    auto asked = asked_.find({header.incarnation, header.request_id});
    if (asked == asked_.end()) return;
    if (header.type == wire::FrameType::kPushReply) CheckPush(*sender, asked->second, header, body);
    if (header.type == wire::FrameType::kRoundReply) CheckRound(*sender, asked->second, header);
  }

  void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) override {
    const uint64_t line = context_.history.LineEpoch(slot);
    if (context_.history.FindPush(slot, line, incarnation, seq) == 0)
      Violation(Words(slot, incarnation, seq) + " is acknowledged, and the slot does not have it");
  }
  void OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                           const Status& outcome) override {
    if (!outcome.ok() || context_.durable.FindTable(table) == nullptr) return;
    for (uint32_t s = 0; s < context_.durable.slots.size(); ++s) {
      if (context_.history.OpenRound(SlotId(s), table) > round) continue;
      return Violation(Words(table, round) + " is acknowledged to incarnation " +
                       std::to_string(incarnation.value) + " and still open in slot " + std::to_string(s));
    }
  }

 private:
  struct Asked {
    std::vector<std::pair<uint32_t, uint64_t>> entries;  // slot, number
    bool marks = false, first_phase = false;
  };
  static std::string Words(SlotId slot, Incarnation incarnation, Seq seq) {
    return "number " + std::to_string(seq.value) + " of incarnation " + std::to_string(incarnation.value) +
           " in slot " + std::to_string(slot.value);
  }
  using AnswerChecker::Violation;
  static std::string Words(TableId table, Round round) { return cairn::sim::Words(table, round); }

  void Remember(const wire::FrameHeader& header, std::span<const std::byte> body) {
    const bool round = header.type == wire::FrameType::kContribute || header.type == wire::FrameType::kDone;
    if (!round && header.type != wire::FrameType::kPush) return;
    auto [it, added] = asked_.try_emplace({header.incarnation, header.request_id});
    if (!added) return;
    const auto push = wire::DecodePush(header, body);
    if (!push.ok()) return;
    for (const wire::SlotEntry& e : push->entries) it->second.entries.emplace_back(e.slot, e.number);
    it->second.marks = header.type == wire::FrameType::kDone || (header.flags & wire::kFlagDone) != 0;
    it->second.first_phase = push->params.has(wire::kParamTwoPhase);
  }

  void CheckPush(const ShardName& sender, const Asked& asked, const wire::FrameHeader& header,
                 std::span<const std::byte> body) {
    const auto reply = wire::DecodePushReply(header, body);
    if (!reply.ok()) return;
    for (const auto& [slot, number] : asked.entries) {
      const bool gap = std::ranges::any_of(reply->entries, [&, s = slot](const wire::SlotEntry& e) {
        return e.slot == s && static_cast<Code>(e.count) == Code::kUnavailable;
      });
      if (gap) continue;
      const std::string what = Words(SlotId(slot), Incarnation(header.incarnation), Seq(number));
      const uint64_t index = context_.history.FindPush(SlotId(slot), context_.EpochLed(sender, SlotId(slot)),
                                                       Incarnation(header.incarnation), Seq(number));
      if (index == 0) {
        Violation(what + " is acknowledged by " + ToString(sender) + " and was not decided there");
      } else {
        CheckOwners(sender, SlotId(slot), index, what);
      }
    }
  }

  // Of a frame with a mark: in every slot that the shard thread had under the state that the answer
  // was made under; of others: in the slots they name.
  void CheckRound(const ShardName& sender, const Asked& asked, const wire::FrameHeader& header) {
    std::vector<uint32_t> slots;
    if (asked.marks) {
      auto state = context_.states.find(header.state_version);
      if (state == context_.states.end()) return;
      for (uint32_t s = 0; s < state->second->slots.size(); ++s) {
        const wire::SlotOwner& owner = state->second->slots[s];
        // What is being handed over is not covered: whoever gets it answers for it.
        const bool mine = owner.server == sender.server && owner.thread == sender.thread;
        if (mine && owner.heir == wire::kNoServer) slots.push_back(s);
      }
    } else {
      for (const auto& [slot, number] : asked.entries) slots.push_back(slot);
    }
    const TableId table(header.table);
    const Round round(header.round);
    // A first phase that is refused in one slot is answered so, whatever the others will do.
    const bool refused = (header.flags & wire::kFlagRefused) != 0;
    const bool report = (header.flags & wire::kFlagReport) != 0 || (asked.first_phase && refused);
    for (uint32_t s : slots) {
      const uint64_t epoch = context_.EpochLed(sender, SlotId(s));
      // A report may be sent after the round has closed: it says nothing of that.
      uint64_t index = report ? context_.history.FindSumUp(SlotId(s), epoch, table, round) : 0;
      if (index == 0) index = context_.history.FindClose(SlotId(s), epoch, table, round);
      const std::string what = Words(table, round) + " in slot " + std::to_string(s);
      if (index == 0) return Violation(what + " is answered by " + ToString(sender) + " and still open");
      CheckOwners(sender, SlotId(s), index, what);
    }
  }

  std::map<std::pair<uint64_t, uint64_t>, Asked> asked_;  // by (incarnation, request)
};

// Pulls see what every owner in sync has, never less than the same client has seen, and always what
// was acknowledged to it before it asked.
class ReadsCommitted final : public AnswerChecker {
 public:
  explicit ReadsCommitted(Context& context) : AnswerChecker("reads-committed", context) {}

  void OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position) override {
    if (!context_.history.OnLine(slot, position))
      Violation("a read of " + Words(slot, position) + ", which is no place in the slot's history");
    Position& last = read_[{incarnation.value, table.value, slot.value}];
    last = std::max(last, position);
  }
  void OnCallEnd(const CallEnd& end) override {
    const bool reads = end.kind == CallEnd::Kind::kPull || end.kind == CallEnd::Kind::kPushPull;
    if (!reads || !end.status.ok() || end.info->spec.mode != Mode::kAsync) return;
    const auto slot_count = static_cast<uint32_t>(context_.durable.slots.size());
    if (end.info->spec.kind == TableKind::kSparse) {
      for (RowKey key : end.keys) CheckSlot(end, wire::SlotOfKey(key, slot_count).value);
      return;
    }
    const auto runs = RunsBySlot(wire::DenseLayout::Of(end.info->id, end.info->spec.size, slot_count));
    for (uint32_t s = 0; s < runs.size(); ++s) {
      if (!runs[s].empty()) CheckSlot(end, s);
    }
  }
  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    // A sync pull is answered by a shard only when its slots have closed the rounds it waits for.
    if (from.role == wire::Role::kWorker && header.type == wire::FrameType::kPull &&
        (header.flags & wire::kFlagSyncPull) != 0 &&
        context_.tables.at(header.table).spec.mode == Mode::kSync) {
      needs_[{header.incarnation, header.request_id}] = header.round;
    }
    const bool pull = header.type == wire::FrameType::kPullReply;
    const bool after = header.type == wire::FrameType::kRoundReply &&
                       (header.flags & (wire::kFlagRefused | wire::kFlagReport)) == 0;
    const ShardName* sender = context_.NameOf(from);
    if (from.role != wire::Role::kServer || sender == nullptr || (!pull && !after)) return;
    const auto reply = wire::DecodeValues(header, body);
    if (!reply.ok()) return;
    auto need = needs_.find({header.incarnation, header.request_id});
    for (const wire::SlotEntry& e : reply->entries) {
      const Position at{e.number};
      CheckOwners(*sender, SlotId(e.slot), at.index(), "a read of " + Words(SlotId(e.slot), at));
      if (!pull || need == needs_.end()) continue;
      if (context_.history.OpenRound(SlotId(e.slot), at, TableId(header.table)).value < need->second) {
        Violation("slot " + std::to_string(e.slot) + " answers a sync pull before round " +
                  std::to_string(need->second) + " is open");
      }
    }
  }

 private:
  void CheckSlot(const CallEnd& end, uint32_t slot) {
    auto it = end.acknowledged->find(slot);
    if (it == end.acknowledged->end()) return;
    if (read_[{end.incarnation.value, end.info->id.value, slot}].index() < it->second.index()) {
      Violation("worker " + std::to_string(end.worker) + " reads slot " + std::to_string(slot) +
                " without a push that was acknowledged to it before");
    }
  }

  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, Position> read_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> needs_;
};

}  // namespace

CheckerPtr MakeEarlyAck(Context& context) { return std::make_unique<EarlyAck>(context); }
CheckerPtr MakeReadsCommitted(Context& context) { return std::make_unique<ReadsCommitted>(context); }

}  // namespace cairn::sim

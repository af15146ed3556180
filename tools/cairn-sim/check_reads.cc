// Reads: never older than what the same client has seen, never of a state that was not there, and
// never without what was acknowledged to the client before it asked.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "checkers.h"

namespace cairn::sim {

namespace {

std::string Words(Position position) {
  return "(" + std::to_string(position.epoch()) + ", " + std::to_string(position.index()) + ")";
}

class MonotoneReads final : public Checker {
 public:
  explicit MonotoneReads(Context& context) : Checker("monotone-reads", context) {}
  void OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position) override {
    Position& seen = seen_[{incarnation.value, slot.value}];
    if (position < seen) {
      Violation("incarnation " + std::to_string(incarnation.value) + " reads table " +
                std::to_string(table.value) + " in slot " + std::to_string(slot.value) + " at " +
                Words(position) + " after " + Words(seen));
    }
    seen = std::max(seen, position);
  }

 private:
  std::map<std::pair<uint64_t, uint32_t>, Position> seen_;
};

class ReadsCommitted final : public Checker {
 public:
  explicit ReadsCommitted(Context& context) : Checker("reads-committed", context) {}

  void OnPush(const PushEvent& e) override {
    if (e.outcome != server::Outcome::kApplied && e.outcome != server::Outcome::kRefused) return;
    Raise(e.slot, e.position);
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    Raise(record.slot, record.position);
  }

  void OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position) override {
    const Position now = now_[slot.value];
    const uint64_t epoch =
        slot.value < context_.durable.slots.size() ? context_.durable.slots[slot.value].epoch : 0;
    if (position.index() > now.index() || position.epoch() != epoch) {
      Violation("a read of slot " + std::to_string(slot.value) + " at " + Words(position) +
                ", the slot is at " + Words(Position::Of(epoch, now.index())));
    }
    Position& last = read_[{incarnation.value, table.value, slot.value}];
    last = std::max(last, position);
  }
  void OnCallEnd(const CallEnd& end) override {
    if (end.kind != CallEnd::Kind::kPull || !end.status.ok() || end.info->spec.mode != Mode::kAsync) return;
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
        (header.flags & wire::kFlagSyncPull) != 0) {
      needs_[{header.incarnation, header.request_id}] = header.round;
    }
    if (from.role != wire::Role::kServer || header.type != wire::FrameType::kPullReply) return;
    auto need = needs_.find({header.incarnation, header.request_id});
    if (need == needs_.end()) return;
    const auto reply = wire::DecodeValues(header, body);
    if (!reply.ok()) return;
    for (const wire::SlotEntry& e : reply->entries) {
      const server::Shard* shard = context_.ShardOf(SlotId(e.slot));
      if (shard != nullptr && shard->OpenRound(TableId(header.table), SlotId(e.slot)).value < need->second) {
        Violation("slot " + std::to_string(e.slot) + " answers a sync pull before round " +
                  std::to_string(need->second) + " is open");
      }
    }
  }

 private:
  void Raise(SlotId slot, Position position) {
    Position& now = now_[slot.value];
    if (now.packed != 0 && position.index() != now.index() + 1) {
      Violation("slot " + std::to_string(slot.value) + " goes from " + Words(now) + " to " + Words(position));
    }
    now = position;
  }
  void CheckSlot(const CallEnd& end, uint32_t slot) {
    auto it = end.acknowledged->find(slot);
    if (it == end.acknowledged->end()) return;
    if (read_[{end.incarnation.value, end.info->id.value, slot}] < it->second) {
      Violation("worker " + std::to_string(end.worker) + " reads slot " + std::to_string(slot) +
                " without a push that was acknowledged to it before");
    }
  }

  std::map<uint32_t, Position> now_;
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, Position> read_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> needs_;
};

}  // namespace

CheckerPtr MakeMonotoneReads(Context& context) { return std::make_unique<MonotoneReads>(context); }
CheckerPtr MakeReadsCommitted(Context& context) { return std::make_unique<ReadsCommitted>(context); }

}  // namespace cairn::sim

// Assigned values of dense tables: who waits for them reads nothing else, and an assign-once takes
// place once.
#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "checkers.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

class Assigned final : public Checker {
 public:
  explicit Assigned(Context& context) : Checker("assigned", context) {}

  void OnPush(const PushEvent& e) override {
    const Part* part = context_.facts.Push(e.incarnation, e.slot, e.seq);
    if (e.outcome != server::Outcome::kApplied || part == nullptr || part->op() == PushOp::kUpdate) return;
    if (context_.tables.at(e.table.value).spec.kind == TableKind::kSparse) return;  // the model knows rows
    const bool before = assigned_.contains({e.table.value, e.slot.value});
    if (part->params.column == 0) assigned_.insert({e.table.value, e.slot.value});
    // The values are random: the slot has them only if it has taken them. But pieces that are left
    // out are zeros or NaN, and two workers may leave out all of a slot: the model knows what is right
    // there.
    const bool random = std::ranges::any_of(e.values, [](std::byte b) {
      return b != std::byte{0} && b != std::byte{0xc0} && b != std::byte{0x7f};
    });
    if (before && random && part->op() == PushOp::kAssignOnce && Holds(e.table, e.slot, e.values)) {
      Violation("slot " + std::to_string(e.slot.value) + " of table " + std::to_string(e.table.value) +
                " is assigned once more by number " + std::to_string(e.seq.value) + " of incarnation " +
                std::to_string(e.incarnation.value));
    }
  }
  void OnStaged(const StagedEvent& e) override {
    if (!e.refused) staged_.insert({e.table.value, e.slot.value, e.round.value});
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    const bool staged = staged_.erase({record.table.value, record.slot.value, record.round.value}) > 0;
    const bool applies = staged && record.outcome == Code::kOk && record.divisor > 0;
    if (applies && record.op == PushOp::kAssign && record.column == 0)
      assigned_.insert({record.table.value, record.slot.value});
  }

  void ForgetSlot(SlotId slot) override {
    std::erase_if(assigned_, [&](const auto& entry) { return entry.second == slot.value; });
    std::erase_if(staged_, [&](const auto& entry) { return std::get<1>(entry) == slot.value; });
  }

  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    const std::pair<uint64_t, uint64_t> request{header.incarnation, header.request_id};
    if (from.role == wire::Role::kWorker && header.type == wire::FrameType::kPull) {
      if ((header.flags & wire::kFlagAssigned) != 0) waits_.insert(request);
    } else if (header.type == wire::FrameType::kPullReply && waits_.contains(request)) {
      const auto reply = wire::DecodeValues(header, body);
      if (!reply.ok()) return;
      for (const wire::SlotEntry& e : reply->entries) {
        if (e.count == 0 || assigned_.contains({header.table, e.slot})) continue;
        Violation("slot " + std::to_string(e.slot) + " of table " + std::to_string(header.table) +
                  " answers a pull of assigned values and has none");
      }
    }
  }

 private:
  bool Holds(TableId table, SlotId slot, std::span<const std::byte> values) const {
    const server::Shard* shard = context_.ShardOf(slot);
    if (shard == nullptr || values.empty()) return false;
    bool same = false;
    shard->ForEachRow(table, slot, [&](RowKey, std::span<const std::byte> bytes) {
      same = std::ranges::equal(bytes, values);
    });
    return same;
  }

  std::set<std::pair<uint32_t, uint32_t>> assigned_;  // (table, slot)
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> staged_;
  std::set<std::pair<uint64_t, uint64_t>> waits_;  // pulls, by (incarnation, request)
};

}  // namespace

CheckerPtr MakeAssigned(Context& context) { return std::make_unique<Assigned>(context); }

}  // namespace cairn::sim

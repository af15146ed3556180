// What makes a push count once, on every owner: the last number of each client in a slot, and which
// of its pushes were refused. The hash of a slot's content does not cover them, so an owner that lacks
// them looks well until it is promoted and a copy of an old push comes in.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers.h"

namespace cairn::sim {

namespace {

// Every owner in sync is compared with what the slot's line says at the owner's own position.
class EqualNumbers final : public Checker {
 public:
  explicit EqualNumbers(Context& context) : Checker("equal-numbers", context) {}

  void OnPush(const PushEvent& e) override {
    const bool refused = e.outcome == server::Outcome::kRefused;
    if (!refused && e.outcome != server::Outcome::kApplied) return;
    numbers_[{e.slot.value, e.incarnation.value}].push_back(
        {e.position.index(), e.seq, refused ? e.code : Code::kOk});
  }
  void ForgetSlot(SlotId slot) override {
    std::erase_if(numbers_, [&](const auto& item) { return item.first.first == slot.value; });
    std::erase_if(texts_, [&](const auto& item) { return std::get<0>(item.first) == slot.value; });
  }
  // Whoever is in sync from now on may be promoted.
  void OnDurable(const wire::ClusterState& state) override {
    for (uint32_t s = 0; s < state.slots.size(); ++s) {
      if (s >= before_.size() || before_[s] != state.slots[s]) Look(SlotId(s));
    }
    before_ = state.slots;
  }
  void OnMoment() override { LookAtAll(); }
  void OnSettled() override { LookAtAll(); }
  void AtEnd() override { LookAtAll(); }

 private:
  struct Used {
    uint64_t index;  // in the slot's order
    Seq seq;
    Code refused;  // kOk: applied
  };
  void LookAtAll() {
    for (uint32_t s = 0; s < context_.durable.slots.size(); ++s) Look(SlotId(s));
  }
  void Look(SlotId slot) {
    for (const ShardName& owner : context_.InSync(slot)) {
      auto shard = context_.shards.find(owner);
      const auto& state = context_.shard_states[owner];
      if (shard == context_.shards.end() || !state || context_.damaged.contains({owner, slot.value}))
        continue;
      const Position at = context_.Applied(owner, slot);
      if (at.index() == 0 || !context_.history.OnLine(slot, at)) continue;
      // Those that it does not list may not push any more: their numbers are of no use.
      for (const wire::WorkerInfo& worker : state->workers)
        Compare(owner, *shard->second, slot, worker.incarnation, at.index());
    }
  }
  void Compare(const ShardName& owner, const server::Shard& shard, SlotId slot, Incarnation incarnation,
               uint64_t index) {
    const std::span<const Used> used = UsedUpTo(slot, incarnation, index);
    const Seq last = used.empty() ? Seq{0} : used.back().seq;
    if (shard.LastSeq(slot, incarnation) != last) {
      return Violation(Words(owner, slot, incarnation, index) + " has number " +
                       std::to_string(shard.LastSeq(slot, incarnation).value) + " as the last one, not " +
                       std::to_string(last.value));
    }
    const auto refusals = shard.RefusalsOf(slot, incarnation);
    size_t at = refusals.size(), kept = 0;
    for (auto it = used.rbegin(); it != used.rend() && kept < context_.plan.max_unacked_frames; ++it) {
      if (it->refused == Code::kOk) continue;
      ++kept;
      if (at == 0 || refusals[at - 1].seq != it->seq || refusals[at - 1].why.code() != it->refused) {
        return Violation(Words(owner, slot, incarnation, index) + " does not know that number " +
                         std::to_string(it->seq.value) + " was refused with " +
                         std::string(CodeName(it->refused)));
      }
      CheckText(owner, slot, incarnation, refusals[--at]);
    }
    if (at > 0)
      Violation(Words(owner, slot, incarnation, index) + " takes number " +
                std::to_string(refusals[at - 1].seq.value) + " for refused, which it was not");
  }
  // Every owner gives the same reason.
  void CheckText(const ShardName& owner, SlotId slot, Incarnation incarnation,
                 const server::Shard::Refusal& refusal) {
    auto [it, added] =
        texts_.try_emplace({slot.value, incarnation.value, refusal.seq.value}, refusal.why.message());
    if (!added && it->second != refusal.why.message())
      Violation(ToString(owner) + " says of number " + std::to_string(refusal.seq.value) + " in slot " +
                std::to_string(slot.value) + " \"" + refusal.why.message() + "\", another owner said \"" +
                it->second + "\"");
  }
  std::span<const Used> UsedUpTo(SlotId slot, Incarnation incarnation, uint64_t index) const {
    auto it = numbers_.find({slot.value, incarnation.value});
    if (it == numbers_.end()) return {};
    const auto end = std::ranges::upper_bound(it->second, index, {}, &Used::index);
    return {it->second.data(), static_cast<size_t>(end - it->second.begin())};
  }
  static std::string Words(const ShardName& owner, SlotId slot, Incarnation incarnation, uint64_t index) {
    return ToString(owner) + ", in sync in slot " + std::to_string(slot.value) + " at index " +
           std::to_string(index) + ": incarnation " + std::to_string(incarnation.value);
  }

  std::map<std::pair<uint32_t, uint64_t>, std::vector<Used>> numbers_;  // by (slot, incarnation)
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, std::string> texts_;
  std::vector<wire::SlotOwner> before_;
};

}  // namespace

CheckerPtr MakeEqualNumbers(Context& context) { return std::make_unique<EqualNumbers>(context); }

}  // namespace cairn::sim

// Rounds: each closes once and in order, a worker starts the next one only when the last is closed
// everywhere, and whoever lives is counted.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers.h"
#include "violation_text.h"

namespace cairn::sim {

namespace {

class RoundOnce final : public Checker {
 public:
  explicit RoundOnce(Context& context) : Checker("round-once", context) {}
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    uint64_t& next = next_[{record.table.value, record.slot.value}];
    if (record.round.value != next) {
      Violation("slot " + std::to_string(record.slot.value) + " closes " + Words(record.table, record.round) +
                ", its open round is " + std::to_string(next));
    }
    next = record.round.value + 1;
  }
  void ForgetSlot(SlotId slot) override {
    std::erase_if(next_, [&](const auto& entry) { return entry.first.second == slot.value; });
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> next_;
};

class NextRound final : public Checker {
 public:
  explicit NextRound(Context& context) : Checker("next-round", context) {}
  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte>) override {
    const bool contribution =
        header.type == wire::FrameType::kContribute || header.type == wire::FrameType::kDone;
    if (from.role != wire::Role::kWorker || !contribution) return;
    auto [it, first] = started_.try_emplace({header.incarnation, header.table}, header.round);
    if (first || header.round <= it->second) return;
    it->second = header.round;
    if (context_.durable.FindTable(TableId(header.table)) == nullptr) return;
    for (uint32_t s = 0; s < context_.durable.slots.size(); ++s) {
      if (context_.history.OpenRound(SlotId(s), TableId(header.table)).value >= header.round) continue;
      return Violation("incarnation " + std::to_string(header.incarnation) + " starts " +
                       Words(TableId(header.table), Round(header.round)) +
                       " while the last one is open in slot " + std::to_string(s));
    }
  }

 private:
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> started_;
};

class Contributors final : public Checker {
 public:
  explicit Contributors(Context& context) : Checker("contributors", context) {}

  void OnSummedUp(const SummedUpEvent& e) override {
    const auto& state = context_.shard_states[e.shard];
    if (state) Count({e.table, e.slot, e.round}, e.contributors, *state);
    summed_[{e.table.value, e.slot.value, e.round.value}] = e.contributors;
  }
  void OnClosed(const ShardName& shard, const server::CloseRecord& record) override {
    const auto state = context_.states.find(record.version.value);
    if (state == context_.states.end()) {
      return Violation(ToString(shard) + " closes under version " + std::to_string(record.version.value) +
                       ", which it was never given");
    }
    if (state->second->FindTable(record.table) == nullptr)
      return Violation(Words(record.table, record.round) + " closes in a dropped table");
    const Where where{record.table, record.slot, record.round};
    auto summed = summed_.extract({record.table.value, record.slot.value, record.round.value});
    if (summed.empty()) return Count(where, record.contributors, *state->second);
    // Deaths since then change nothing, and nobody joins a round that is open.
    if (!std::ranges::equal(summed.mapped(), record.contributors, Same)) {
      Violation(where.Text() + " closes with other contributors than it was summed up with");
    }
    CheckComplete(where, *state->second);
  }

  void OnStaged(const StagedEvent& e) override {
    const auto& state = context_.shard_states[e.shard];
    if (!state || state->FindWorker(e.incarnation) == nullptr) {
      Violation("slot " + std::to_string(e.slot.value) + " stages a contribution of incarnation " +
                std::to_string(e.incarnation.value) + ", which is retired");
    }
  }

  void OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                           const Status& outcome) override {
    if (!outcome.ok()) return;
    acknowledged_.insert({table.value, round.value, incarnation.value});
    CheckCounted(table, round, incarnation.value);
  }
  void ForgetSlot(SlotId slot) override {
    for (auto& [id, slots] : sets_) slots.erase(slot.value);
    std::erase_if(summed_, [&](const auto& entry) { return std::get<1>(entry.first) == slot.value; });
  }

  void AtEnd() override {
    // Whatever became of the primaries since.
    for (const auto& [table, round, incarnation] : acknowledged_)
      CheckCounted(TableId(table), Round(round), incarnation);
    for (const auto& [id, slots] : sets_) {
      for (const auto& [slot, set] : slots) {
        for (uint64_t incarnation : set) {
          uint64_t& last = last_round_[{id.first, incarnation}];
          last = std::max(last, id.second);
        }
      }
    }
    for (const auto& [id, slots] : sets_) {
      std::set<uint64_t> all;
      for (const auto& [slot, set] : slots) all.insert(set.begin(), set.end());
      for (const auto& [slot, set] : slots) {
        for (uint64_t incarnation : all) {
          if (!set.contains(incarnation)) CheckDied(id.first, id.second, slot, incarnation);
        }
      }
    }
  }

 private:
  struct Where {
    TableId table;
    SlotId slot;
    Round round;
    std::string Text() const {
      return "slot " + std::to_string(slot.value) + ", " + Words(table, round) + ",";
    }
  };
  static bool Same(const server::Contributor& a, const server::Contributor& b) {
    return a.incarnation == b.incarnation && a.weight == b.weight && a.live == b.live &&
           a.gradient == b.gradient && a.refused == b.refused;
  }

  void Count(const Where& where, const std::vector<server::Contributor>& contributors,
             const wire::ClusterState& state) {
    auto& set = sets_[{where.table.value, where.round.value}][where.slot.value];
    for (const server::Contributor& c : contributors) {
      set.insert(c.incarnation.value);
      if (!c.live) continue;
      CheckMark(where, c);
      if (state.FindWorker(c.incarnation) == nullptr) {
        Violation(where.Text() + " counts incarnation " + std::to_string(c.incarnation.value) + " as live");
      }
    }
    CheckComplete(where, state);
  }
  void CheckComplete(const Where& where, const wire::ClusterState& state) {
    const auto& set = sets_[{where.table.value, where.round.value}][where.slot.value];
    for (Incarnation worker : Context::Awaited(state, where.table, where.round)) {
      if (set.contains(worker.value)) continue;
      Violation(where.Text() + " is without incarnation " + std::to_string(worker.value) + ", which lives");
    }
  }
  // A live contributor has said done, and what it says it contributes here has come.
  void CheckMark(const Where& where, const server::Contributor& c) {
    const RoundSaid* said = context_.facts.Said(c.incarnation, where.table, where.round);
    const std::string who = "incarnation " + std::to_string(c.incarnation.value) + " in " + where.Text();
    if (said == nullptr || !said->done_said) return Violation(who + " is counted and was not done");
    if (said->Touches(where.slot.value) && !c.gradient && !c.refused) {
      Violation(who + " is counted without its contribution");
    }
  }
  void CheckCounted(TableId table, Round round, uint64_t incarnation) {
    for (const auto& [slot, set] : sets_[{table.value, round.value}]) {
      if (set.contains(incarnation)) continue;
      Violation(Words(table, round) + " is acknowledged to incarnation " + std::to_string(incarnation) +
                ", which slot " + std::to_string(slot) + " did not count");
    }
  }
  void CheckDied(uint32_t table, uint64_t round, uint32_t slot, uint64_t incarnation) {
    const bool lives = context_.durable.FindWorker(Incarnation(incarnation)) != nullptr;
    const std::string what = Words(TableId(table), Round(round)) + " counts incarnation " +
                             std::to_string(incarnation) + " in some slots and not in slot " +
                             std::to_string(slot);
    if (lives || context_.left.contains(incarnation)) return Violation(what + ", and it did not die");
    if (last_round_[{table, incarnation}] > round) Violation(what + ", and it did not die in that round");
  }

  std::map<std::pair<uint32_t, uint64_t>, std::map<uint32_t, std::set<uint64_t>>> sets_;
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> last_round_;     // that it is counted in; at the end
  std::set<std::tuple<uint32_t, uint64_t, uint64_t>> acknowledged_;  // table, round, incarnation
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, std::vector<server::Contributor>> summed_;
};

}  // namespace

CheckerPtr MakeRoundOnce(Context& context) { return std::make_unique<RoundOnce>(context); }
CheckerPtr MakeNextRound(Context& context) { return std::make_unique<NextRound>(context); }
CheckerPtr MakeContributors(Context& context) { return std::make_unique<Contributors>(context); }

}  // namespace cairn::sim

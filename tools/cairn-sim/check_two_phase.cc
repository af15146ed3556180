// Rounds in two phases: what their workers are told is what was summed up, and what becomes of them
// is what all who live have decided, in every slot alike.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers.h"
#include "violation_text.h"

namespace cairn::sim {

namespace {

using RoundId = std::pair<uint32_t, uint64_t>;  // table, round

class Decisions final : public Checker {
 public:
  explicit Decisions(Context& context) : Checker("decisions", context) {}

  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    closed_[{record.table.value, record.round.value}].insert_or_assign(record.slot.value, record);
    if (!record.two_phase) return;
    const auto state = context_.states.find(record.version.value);
    if (state == context_.states.end()) return;
    Judge(record, *state->second);
    CheckAlike(record);
  }

  void ForgetSlot(SlotId slot) override {
    for (auto& [id, slots] : closed_) slots.erase(slot.value);
    for (auto& [id, slots] : done_) slots.erase(slot.value);
  }

  // Whoever is told how a round ended has been told what the slots have done.
  void OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                           const Status& outcome) override {
    const RoundSaid* said = context_.facts.Said(incarnation, table, round);
    const std::string what =
        Words(table, round) + " is acknowledged to incarnation " + std::to_string(incarnation.value);
    bool found = false;
    for (const auto& [slot, record] : closed_[{table.value, round.value}]) {
      const Code code = CodeFor(record, incarnation);
      found |= code == outcome.code();
      if (!outcome.ok()) continue;
      const std::string here = ", in slot " + std::to_string(record.slot.value) + " it ";
      if (code != Code::kOk) Violation(what + here + "ended with " + std::string(CodeName(code)));
      if (!record.two_phase || said == nullptr || said->joined || !said->decision) continue;
      const DecisionSaid& wanted = *said->decision;
      if (record.skipped != wanted.skip || (!wanted.skip && record.scale != wanted.scale)) {
        Violation(what + ", which decided otherwise" + here + "was " +
                  (record.skipped ? "skipped" : "scaled by " + std::to_string(record.scale)));
      }
    }
    const bool by_slots = outcome.code() == Code::kHyperMismatch || outcome.code() == Code::kUnavailable;
    if (by_slots && !found) Violation(what + " with " + outcome.ToString() + ", which no slot had");
  }

 private:
  static Code CodeFor(const server::CloseRecord& record, Incarnation incarnation) {
    if (record.outcome == Code::kHyperMismatch) return record.outcome;
    const auto mine = std::ranges::find(record.contributors, incarnation, &server::Contributor::incarnation);
    if (mine != record.contributors.end() && mine->refused) return Code::kNotFinite;
    return record.outcome;
  }

  void Judge(const server::CloseRecord& record, const wire::ClusterState& state) {
    std::optional<DecisionSaid> common;
    bool differ = false, joined = false;
    for (Incarnation worker : Context::Awaited(state, record.table, record.round)) {
      const RoundSaid* said = context_.facts.Said(worker, record.table, record.round);
      if (said != nullptr && said->joined) {
        joined = true;
        continue;
      }
      if (said == nullptr || !said->decision) {
        return Violation(Words(record) + " closes before incarnation " + std::to_string(worker.value) +
                         " has decided");
      }
      differ |= common && !(*common == *said->decision);
      common = said->decision;
    }
    if (!common && !joined && !SomebodyStartsLater(record, state))
      return Violation(Words(record) + " closes although nobody has decided and nobody waits");
    if (differ != (record.outcome == Code::kHyperMismatch)) {
      return Violation(Words(record) + " closes with " + std::string(CodeName(record.outcome)) +
                       " and the decisions " + (differ ? "differ" : "are the same"));
    }
    if (differ) return;
    const bool skip = !common || common->skip;
    if (record.skipped != skip || (!skip && record.scale != common->scale) ||
        (common && record.hyper != common->hyper)) {
      Violation(Words(record) + " closes in another way than was decided");
    }
  }
  static bool SomebodyStartsLater(const server::CloseRecord& record, const wire::ClusterState& state) {
    for (const wire::View& view : state.views) {
      for (const wire::TableRound& start : view.starts) {
        if (start.table == record.table && start.round > record.round) return true;
      }
    }
    return false;
  }

  // All slots do the same. Where nobody was left to decide, a slot may skip what others applied.
  void CheckAlike(const server::CloseRecord& record) {
    if (record.outcome != Code::kOk) return;
    const auto state = context_.states.find(record.version.value);
    bool decided = false;
    for (Incarnation worker : Context::Awaited(*state->second, record.table, record.round)) {
      const RoundSaid* said = context_.facts.Said(worker, record.table, record.round);
      decided |= said != nullptr && !said->joined && said->decision;
    }
    if (!decided) return;
    const DecisionSaid done{record.skipped, record.scale, record.hyper};
    auto& slots = done_[{record.table.value, record.round.value}];
    if (!slots.empty() && !(slots.begin()->second == done))
      Violation(Words(record) + " ends otherwise than in slot " + std::to_string(slots.begin()->first));
    slots.insert_or_assign(record.slot.value, done);
  }

  std::map<RoundId, std::map<uint32_t, server::CloseRecord>> closed_;  // by slot
  std::map<RoundId, std::map<uint32_t, DecisionSaid>> done_;
};

class Reports final : public Checker {
 public:
  explicit Reports(Context& context) : Checker("reports", context) {}

  void OnCallEnd(const CallEnd& end) override {
    // Who has joined has no part in the first phase, and may be told after the second.
    if (end.kind != CallEnd::Kind::kContribute || !end.status.ok() || end.joined) return;
    const std::string what =
        Words(end.table, end.round) + " is reported to incarnation " + std::to_string(end.incarnation.value);
    const auto& slots = context_.reports[{end.table.value, end.round.value}];
    if (slots.size() != context_.durable.slots.size()) {
      return Violation(what + " when it is summed up in " + std::to_string(slots.size()) + " of " +
                       std::to_string(context_.durable.slots.size()) + " slots");
    }
    SlotReport all;
    for (const auto& [slot, report] : slots) {
      all.sum_squares += report.sum_squares;
      all.finite &= report.finite;
    }
    if (end.told.finite != all.finite)
      return Violation(what + (all.finite ? " as not finite" : " as finite") + ", and it is not so");
    const double error = std::abs(end.told.sum_squares - all.sum_squares);
    if (all.finite && !(error <= kTolerance * (1 + all.sum_squares))) {
      std::string of_slots;
      for (const auto& [slot, report] : slots)
        of_slots += " " + std::to_string(slot) + ":" + std::to_string(report.sum_squares);
      return Violation(what + " with " + std::to_string(end.told.sum_squares) + ", it is " +
                       std::to_string(all.sum_squares) + ", by slot" + of_slots);
    }
    // Every worker computes its decision from this: all must get the same bits.
    auto [it, first] = told_.try_emplace({end.table.value, end.round.value}, end.told.sum_squares);
    if (!first && all.finite && it->second != end.told.sum_squares)
      Violation(what + " in other bits than to somebody else");
  }

 private:
  static constexpr double kTolerance = 1e-4;  // sums of floats, in another order
  std::map<RoundId, double> told_;
};

}  // namespace

CheckerPtr MakeDecisions(Context& context) { return std::make_unique<Decisions>(context); }
CheckerPtr MakeReports(Context& context) { return std::make_unique<Reports>(context); }

}  // namespace cairn::sim

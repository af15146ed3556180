// The divisor of a round and its hyper-parameters, computed again from what the workers said on the
// wire and from who lived in the state under which the shard closed it. Weights in the simulator
// are powers of two and small, so that sums are exact in any order.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "checkers.h"

namespace cairn::sim {

namespace {

using RoundId = std::tuple<uint32_t, uint32_t, uint64_t>;  // table, slot, round
RoundId IdOf(TableId table, SlotId slot, Round round) { return {table.value, slot.value, round.value}; }

std::string Words(const server::CloseRecord& r) {
  return "round " + std::to_string(r.round.value) + " of table " + std::to_string(r.table.value) +
         " in slot " + std::to_string(r.slot.value);
}

// Keeps what was staged and calls Judge with it when the round closes.
class StagedChecker : public Checker {
 public:
  using Checker::Checker;
  void OnStaged(const StagedEvent& e) override {
    staged_[IdOf(e.table, e.slot, e.round)].push_back({e.incarnation, e.weight, e.refused});
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    auto it = context_.states.find(record.version.value);
    const wire::TableInfo* table =
        it == context_.states.end() ? nullptr : it->second->FindTable(record.table);
    if (table == nullptr) return;
    auto staged = staged_.extract(IdOf(record.table, record.slot, record.round));
    Judge(record, *it->second, *table, staged.empty() ? std::vector<Staged>() : std::move(staged.mapped()));
  }

 protected:
  struct Staged {
    Incarnation incarnation;
    double weight;
    bool refused;
  };
  virtual void Judge(const server::CloseRecord& record, const wire::ClusterState& state,
                     const wire::TableInfo& table, const std::vector<Staged>& staged) = 0;
  static const Staged* Find(const std::vector<Staged>& staged, Incarnation incarnation) {
    for (const Staged& s : staged) {
      if (s.incarnation == incarnation) return &s;
    }
    return nullptr;
  }

 private:
  std::map<RoundId, std::vector<Staged>> staged_;
};

class Divisor final : public StagedChecker {
 public:
  explicit Divisor(Context& context) : StagedChecker("divisor", context) {}

 private:
  void Judge(const server::CloseRecord& record, const wire::ClusterState& state, const wire::TableInfo& table,
             const std::vector<Staged>& staged) override {
    double divisor = 0;
    for (const wire::WorkerInfo& worker : state.workers) {
      if (worker.join_view.value == 0 || FirstRound(state, worker, table) > record.round) continue;
      const RoundSaid* said = context_.facts.Said(worker.incarnation, record.table, record.round);
      const Staged* mine = Find(staged, worker.incarnation);
      if (said != nullptr && (mine == nullptr || !mine->refused)) divisor += said->weight;
    }
    for (const Staged& s : staged) {
      if (s.refused || state.FindWorker(s.incarnation) != nullptr) continue;
      const RoundSaid* said = context_.facts.Said(s.incarnation, record.table, record.round);
      if (said != nullptr) divisor += said->weight;
    }
    if (divisor != record.divisor) {
      Violation(Words(record) + " has divisor " + std::to_string(record.divisor) + ", by its contributors " +
                std::to_string(divisor));
    }
  }
};

class HyperChecker final : public StagedChecker {
 public:
  explicit HyperChecker(Context& context) : StagedChecker("hyper", context) {}

 private:
  void Judge(const server::CloseRecord& record, const wire::ClusterState& state, const wire::TableInfo& table,
             const std::vector<Staged>& staged) override {
    std::optional<Hyper> common;
    bool differ = false;
    auto look = [&](Incarnation incarnation) {
      const RoundSaid* said = context_.facts.Said(incarnation, record.table, record.round);
      if (said == nullptr) return;
      differ |= common && *common != said->hyper;
      common = said->hyper;
    };
    for (const wire::WorkerInfo& worker : state.workers) {
      if (worker.join_view.value != 0 && FirstRound(state, worker, table) <= record.round)
        look(worker.incarnation);
    }
    for (const Staged& s : staged) look(s.incarnation);
    if (differ != (record.outcome == Code::kHyperMismatch)) {
      Violation(Words(record) + " closes with " + std::string(CodeName(record.outcome)) +
                " although its workers' " + "hyper-parameters are " + (differ ? "different" : "equal"));
    }
    if (!differ && common && record.hyper != *common)
      Violation(Words(record) + " records other hyper-parameters");
  }
};

}  // namespace

CheckerPtr MakeDivisor(Context& context) { return std::make_unique<Divisor>(context); }
CheckerPtr MakeHyper(Context& context) { return std::make_unique<HyperChecker>(context); }

}  // namespace cairn::sim

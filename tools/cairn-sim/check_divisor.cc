// The divisor of a round and its hyper-parameters, computed again from what the workers said on the
// wire and from who lived in the state under which the shard closed it, or summed it up: there the
// divisor is fixed. Weights in the simulator are powers of two and small, so that sums are exact in
// any order.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "checkers.h"
#include "violation_text.h"

namespace cairn::sim {

namespace {

using RoundId = std::tuple<uint32_t, uint32_t, uint64_t>;  // table, slot, round
RoundId IdOf(TableId table, SlotId slot, Round round) { return {table.value, slot.value, round.value}; }

// Keeps what was staged and calls Judge with it when the round closes, or is summed up. A round
// that was summed up is not judged again: JudgeClose sees it.
class StagedChecker : public Checker {
 public:
  using Checker::Checker;
  void OnStaged(const StagedEvent& e) override {
    staged_[IdOf(e.table, e.slot, e.round)].push_back({e.incarnation, e.refused});
  }
  void OnSummedUp(const SummedUpEvent& e) override {
    const auto& state = context_.shard_states[e.shard];
    if (!state || state->FindTable(e.table) == nullptr) return;
    server::CloseRecord record;
    record.table = e.table;
    record.slot = e.slot;
    record.round = e.round;
    record.divisor = e.divisor;
    Judge(record, *state, staged_[IdOf(e.table, e.slot, e.round)], true);
    summed_[IdOf(e.table, e.slot, e.round)] = e.divisor;
  }
  void ForgetSlot(SlotId slot) override {
    std::erase_if(staged_, [&](const auto& entry) { return std::get<1>(entry.first) == slot.value; });
    std::erase_if(summed_, [&](const auto& entry) { return std::get<1>(entry.first) == slot.value; });
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    auto staged = staged_.extract(IdOf(record.table, record.slot, record.round));
    auto summed = summed_.extract(IdOf(record.table, record.slot, record.round));
    if (record.two_phase != !summed.empty()) {
      return Violation(Words(record) + (record.two_phase ? " closes by a decision and was not summed up"
                                                         : " is summed up and closes without a decision"));
    }
    if (record.two_phase) return JudgeClose(record, summed.mapped());
    auto it = context_.states.find(record.version.value);
    if (it == context_.states.end() || it->second->FindTable(record.table) == nullptr) return;
    Judge(record, *it->second, staged.empty() ? std::vector<Staged>() : std::move(staged.mapped()), false);
  }

 protected:
  struct Staged {
    Incarnation incarnation;
    bool refused;
  };
  virtual void Judge(const server::CloseRecord& record, const wire::ClusterState& state,
                     const std::vector<Staged>& staged, bool sums_up) = 0;
  virtual void JudgeClose(const server::CloseRecord&, double /*divisor at the sum*/) {}
  const RoundSaid* Said(Incarnation incarnation, const server::CloseRecord& record) const {
    return context_.facts.Said(incarnation, record.table, record.round);
  }
  static const Staged* Find(const std::vector<Staged>& staged, Incarnation incarnation) {
    for (const Staged& s : staged) {
      if (s.incarnation == incarnation) return &s;
    }
    return nullptr;
  }

 private:
  std::map<RoundId, std::vector<Staged>> staged_;
  std::map<RoundId, double> summed_;
};

class Divisor final : public StagedChecker {
 public:
  explicit Divisor(Context& context) : StagedChecker("divisor", context) {}

 private:
  void Judge(const server::CloseRecord& record, const wire::ClusterState& state,
             const std::vector<Staged>& staged, bool) override {
    double divisor = 0;
    for (Incarnation worker : Context::Awaited(state, record.table, record.round)) {
      const RoundSaid* said = Said(worker, record);
      const Staged* mine = Find(staged, worker);
      if (said != nullptr && (mine == nullptr || !mine->refused)) divisor += said->weight();
    }
    for (const Staged& s : staged) {
      if (s.refused || state.FindWorker(s.incarnation) != nullptr) continue;
      if (const RoundSaid* said = Said(s.incarnation, record)) divisor += said->weight();
    }
    const uint32_t flags = context_.tables.at(record.table.value).spec.optimizer_flags;
    if ((flags & kReduceSum) != 0 && record.op == PushOp::kUpdate && divisor > 0) divisor = 1;
    if (divisor != record.divisor) {
      Violation(Words(record) + " has divisor " + std::to_string(record.divisor) + ", by its contributors " +
                std::to_string(divisor));
    }
  }
  void JudgeClose(const server::CloseRecord& record, double divisor) override {
    if (divisor == record.divisor) return;
    Violation(Words(record) + " closes with divisor " + std::to_string(record.divisor) +
              ", it was summed up with " + std::to_string(divisor));
  }
};

class HyperChecker final : public StagedChecker {
 public:
  explicit HyperChecker(Context& context) : StagedChecker("hyper", context) {}

 private:
  void Judge(const server::CloseRecord& record, const wire::ClusterState& state,
             const std::vector<Staged>& staged, bool sums_up) override {
    const RoundSaid* first = nullptr;
    bool differ = false, two_phase = false;
    auto look = [&](Incarnation incarnation) {
      const RoundSaid* said = Said(incarnation, record);
      if (said == nullptr || said->joined) return;
      if (first == nullptr) first = said;
      differ |= !SameTerms(*first, *said);
      two_phase |= said->two_phase();
    };
    for (Incarnation worker : Context::Awaited(state, record.table, record.round)) look(worker);
    for (const Staged& s : staged) look(s.incarnation);
    if (sums_up || (two_phase && !differ)) {
      if (!sums_up || differ || !two_phase) {
        Violation(Words(record) + (sums_up ? " is summed up" : " closes at once") + " although its workers " +
                  (differ      ? "differ"
                   : two_phase ? "want two phases"
                               : "want one phase"));
      }
      return;
    }
    if (differ != (record.outcome == Code::kHyperMismatch)) {
      Violation(Words(record) + " closes with " + std::string(CodeName(record.outcome)) +
                " although its workers' " + "hyper-parameters are " + (differ ? "different" : "equal"));
    }
    if (differ || first == nullptr) return;
    if (record.hyper != first->params.hyper() || static_cast<uint8_t>(record.op) != first->params.op ||
        record.column != first->params.column) {
      Violation(Words(record) + " records other hyper-parameters");
    }
    const bool nobody_gave = record.op == PushOp::kAssign && !(record.divisor > 0);
    if (nobody_gave != (record.outcome == Code::kUnavailable)) {
      Violation(Words(record) + " of assigns has divisor " + std::to_string(record.divisor) +
                " and closes with " + std::string(CodeName(record.outcome)));
    }
  }
  static bool SameTerms(const RoundSaid& a, const RoundSaid& b) {
    return a.params.hyper() == b.params.hyper() && a.params.op == b.params.op &&
           a.params.column == b.params.column && a.two_phase() == b.two_phase() &&
           a.params.has(wire::kParamWeighted) == b.params.has(wire::kParamWeighted);
  }
};

}  // namespace

CheckerPtr MakeDivisor(Context& context) { return std::make_unique<Divisor>(context); }
CheckerPtr MakeHyper(Context& context) { return std::make_unique<HyperChecker>(context); }

}  // namespace cairn::sim

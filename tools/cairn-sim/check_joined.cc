// Workers that have run out of data: a round is all-joined exactly if everyone who lives had
// joined, and all of its workers are told the same.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "checkers.h"

namespace cairn::sim {

namespace {

class Joined final : public Checker {
 public:
  explicit Joined(Context& context) : Checker("joined", context) {}

  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    const auto state = context_.states.find(record.version.value);
    if (state == context_.states.end()) return;
    bool anybody = false, all = true;
    for (Incarnation worker : Context::Awaited(*state->second, record.table, record.round)) {
      const RoundSaid* said = context_.facts.Said(worker, record.table, record.round);
      anybody = true;
      all &= said != nullptr && said->joined;
    }
    if (record.all_joined != (anybody && all)) {
      Violation("slot " + std::to_string(record.slot.value) + " takes " + Words(record.table, record.round) +
                (record.all_joined ? " as all-joined" : " as not all-joined") + ", and it is not so");
    }
    all_joined_[{record.table.value, record.round.value}][record.slot.value] = record.all_joined;
  }
  void ForgetSlot(SlotId slot) override {
    for (auto& [id, slots] : all_joined_) slots.erase(slot.value);
  }

  void OnCallEnd(const CallEnd& end) override {
    // The first phase may end before it is decided who is in the round.
    const bool closes = end.kind == CallEnd::Kind::kRound || end.kind == CallEnd::Kind::kDecide;
    if (!closes || !end.status.ok() || end.churned) return;
    const auto& slots = all_joined_[{end.table.value, end.round.value}];
    const bool all =
        !slots.empty() && std::ranges::all_of(slots, [](const auto& slot) { return slot.second; });
    if (slots.empty() || all != end.told.all_joined) {
      Violation("incarnation " + std::to_string(end.incarnation.value) + " takes " +
                Words(end.table, end.round) + (end.told.all_joined ? " as" : " as not") +
                " all-joined, and it is not so");
    }
  }

 private:
  static std::string Words(TableId table, Round round) {
    return "round " + std::to_string(round.value) + " of table " + std::to_string(table.value);
  }
  std::map<std::pair<uint32_t, uint64_t>, std::map<uint32_t, bool>> all_joined_;  // by (table, round)
};

}  // namespace

CheckerPtr MakeJoined(Context& context) { return std::make_unique<Joined>(context); }

}  // namespace cairn::sim

// Reads: never older than what the same client has seen.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "checkers.h"

namespace cairn::sim {

namespace {

std::string PlaceWords(Position position) {
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
                PlaceWords(position) + " after " + PlaceWords(seen));
    }
    seen = std::max(seen, position);
  }

 private:
  std::map<std::pair<uint64_t, uint32_t>, Position> seen_;
};

}  // namespace

CheckerPtr MakeMonotoneReads(Context& context) { return std::make_unique<MonotoneReads>(context); }

}  // namespace cairn::sim

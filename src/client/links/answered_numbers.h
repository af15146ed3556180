// Up to which number every push to a slot is answered. Answers may come out of order: one that is about
// several slots waits for the last of them, and later pushes pass it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"

namespace cairn::client {

class AnsweredNumbers {
 public:
  void SetSize(size_t slots) {
    through_.assign(slots, 0);
    beyond_.clear();
  }
  void OnAnswered(uint32_t slot, uint64_t number) {
    CAIRN_CHECK(slot < through_.size());
    uint64_t& through = through_[slot];
    if (number <= through) return;
    if (number != through + 1) {
      beyond_.insert({slot, number});
      return;
    }
    ++through;
    if (beyond_.empty()) return;
    while (beyond_.erase({slot, through + 1}) > 0) ++through;
  }
  // Every number up to this one is answered.
  uint64_t through(uint32_t slot) const { return through_[slot]; }

 private:
  std::vector<uint64_t> through_;                   // by slot
  std::set<std::pair<uint32_t, uint64_t>> beyond_;  // answered, with a gap before them: mostly empty
};

}  // namespace cairn::client

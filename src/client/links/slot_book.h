// What the client remembers of each slot, over all tables and connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/links/answered_numbers.h"

namespace cairn::client {

struct SlotBook {
  std::vector<uint64_t> next_number;  // of the next push, from 1
  std::vector<uint64_t> answered;     // the highest number that was applied or refused
  AnsweredNumbers all_answered;       // up to which number all were
  std::vector<uint64_t> seen;         // the highest position read, packed
  uint64_t state_version = 0;         // of the newest state that the client has

  size_t size() const { return seen.size(); }
  void SetSize(size_t slots) {
    next_number.assign(slots, 1);
    answered.assign(slots, 0);
    all_answered.SetSize(slots);
    seen.assign(slots, 0);
  }
};

}  // namespace cairn::client

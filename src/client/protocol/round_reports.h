// What the answers to one round say: the reports of its first phase, by slot, and whether every worker had
// joined. Together they are the caller's RoundInfo. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/recycled.h"
#include "cairn/client.h"
#include "wire/cluster_state.h"
#include "wire/data.h"

namespace cairn::client {

class RoundReports {
 public:
  struct From {
    uint16_t server = 0, thread = 0;
    bool same_map = false;  // it had the slot map that this client has, `owners`
  };
  // One answer of reports. False if it is malformed; then nothing of it is taken.
  bool Take(const wire::ValuesView& values, std::span<const wire::SlotOwner> owners, const From& from);
  // One answer said whether all workers had joined.
  void NoteJoined(bool all) { all_joined_ &= all; }
  // The sum is taken in the order of slots, so that every worker gets the same bits; of several reports of
  // a slot the last one counts.
  RoundInfo Info() const;

 private:
  bool all_joined_ = true;
  // As they come: where a slot has moved, its old and its new owner say the same.
  RecycledVector<std::pair<uint32_t, wire::SlotReport>> reports_;
};

}  // namespace cairn::client

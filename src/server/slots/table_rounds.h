// The rounds of one sync table in all slots of a shard: each slot's open round (slot_round.h), the marks of
// the workers, and what follows for the table as a whole: the lowest and the highest round that is open in a
// slot that this shard is the primary of, and how many slots stand there. Only SumUp and Close of this class
// move such a slot, so that the counts stay true. Bookkeeping; the round engine decides when. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "server/slots/done_marks.h"
#include "server/slots/owned_slots.h"
#include "server/slots/parked.h"
#include "server/slots/slot_round.h"
#include "table/slot_table.h"
#include "wire/cluster_state.h"

namespace cairn::server {

class TableRounds {
 public:
  // Under a new state: who takes part, and which slots count.
  void Update(const wire::ClusterState& state, const wire::TableInfo& table, const OwnedSlots& slots);

  SlotRound& operator[](uint32_t local) { return rounds_[local]; }
  const SlotRound& operator[](uint32_t local) const { return rounds_[local]; }
  uint32_t size() const { return static_cast<uint32_t>(rounds_.size()); }
  DoneMarks& marks() { return marks_; }
  const DoneMarks& marks() const { return marks_; }

  Round latest_start() const { return latest_start_; }  // the highest first round of any view
  bool empty() const { return at_lowest_ == 0; }        // this shard is the primary of no slot
  Round lowest_open() const { return lowest_open_; }
  Round highest_open() const { return highest_open_; }
  bool AnySummedUp() const { return summed_at_lowest_ > 0; }  // at the lowest open round
  bool AllSummedUp() const { return at_lowest_ > 0 && summed_at_lowest_ == at_lowest_; }
  // Every slot here has reached what such a request waits for.
  bool AllReached(Round needed, bool first_phase) const {
    return at_lowest_ == 0 || lowest_open_ >= needed ||
           (first_phase && lowest_open_.Next() == needed && AllSummedUp());
  }
  // Some slot's last round ended in more than ok for somebody.
  bool AnyUnclean() const { return unclean_slots_ > 0; }
  // No slot's last round had only joined workers. A shard without slots does not stand in the way.
  bool NoneJoined() const { return joined_slots_ == 0 && at_lowest_ > 0; }
  // Somebody takes part in the highest open round already.
  bool Touched(const OwnedSlots& slots) const;
  // Cheap for the table as a whole: most marks, contributions and decisions close nothing.
  bool NothingCloses() const;

  // While a view is pending: neither this round nor a later one closes.
  void HoldFrom(Round round) { held_ = round; }
  void EndHold() { held_.reset(); }
  bool Held(Round round) const { return held_ && round >= *held_; }

  // SlotRound's, of the open round in a slot that this shard is the primary of.
  const SlotRound::Summed& SumUp(uint32_t local, const wire::TableInfo& table, table::SlotTable& rows,
                                 bool want_contributors);
  // True if this slot is the first to close the round.
  bool Close(uint32_t local, const ClosedRound& closed, table::SlotTable& rows, const OwnedSlots& slots);

  // Requests that wait: until the open round of a slot moves; for done marks, until the lowest open round
  // rises, or (first phase) is summed up in every slot.
  void WaitAt(uint32_t local, ParkedId id) { waiting_[local].push_back(id); }
  void WaitForAll(ParkedId id, bool first_phase) {
    (first_phase ? waiting_for_reports_ : waiting_for_all_).push_back(id);
  }
  // Those whose wait may be over now that these slots have moved: appended to `woken`.
  void TakeWoken(std::span<const uint32_t> moved, Round lowest_before, std::vector<ParkedId>* woken);

 private:
  void Recount(const OwnedSlots& slots);

  std::vector<SlotRound> rounds_;  // by local slot
  DoneMarks marks_;
  Round latest_start_;
  std::optional<Round> held_;
  Round lowest_open_, highest_open_;
  uint32_t at_lowest_ = 0;         // slots whose open round is the lowest
  uint32_t summed_at_lowest_ = 0;  // and those of them in which it is summed up
  uint32_t unclean_slots_ = 0;
  uint32_t joined_slots_ = 0;
  std::vector<std::vector<ParkedId>> waiting_;  // by local slot
  std::vector<ParkedId> waiting_for_all_, waiting_for_reports_;
};

}  // namespace cairn::server

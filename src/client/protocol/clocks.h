// This worker's clocks in bounded tables (docs/internals/consistency.md, rules 56 to 58): how many steps it
// has ended, and which of them it may tell: those of which every push is answered. Bookkeeping; requests.h
// sends what is due. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"

namespace cairn::client {

class Clocks {
 public:
  // Requests have ids that rise, in the order of Submit.
  void OnPush(TableId table, uint64_t request) { of_[table].pushes.insert(request); }
  // Every frame of it is answered, or it never went.
  void OnPushEnded(TableId table, uint64_t request);
  // Pushes with ids below `next_request` belong to steps that are over now. `last`: no step follows.
  void EndStep(TableId table, uint64_t next_request, bool last);

  // A worker that joined later, or goes on after its last step, takes part from where the others are: `start`
  // is the clock of the slowest one, as some shard thread has it. True if its own clock was less.
  bool BeginAt(TableId table, Round start);
  // Whether it is to ask where the others are, and has not: true once. `joined_later`: the table was there
  // before this worker.
  bool TakeQuestion(TableId table, bool joined_later);

  // Steps that this worker has ended. 0 of a table that it has never used.
  Round Of(TableId table) const;
  struct Due {
    TableId table;
    Round clock;
    bool last = false;
  };
  // A read at this clock of ours, and the smallest one of all then.
  void OnRead(Round own, Round smallest);
  // How many reads have seen others 0, 1, 2 … steps behind; as in heartbeats.
  const std::vector<uint64_t>& staleness() const { return staleness_; }
  // What may be told now and has not been.
  std::optional<Due> TakeDue();
  // What has been told, for shard threads that have not heard it.
  std::vector<Due> told() const;
  void Forget(TableId table) { of_.erase(table); }
  void Clear() { of_.clear(); }

 private:
  struct Ended {
    uint64_t steps = 0;
    uint64_t next_request = 0;
    bool last = false;
  };
  struct OfTable {
    uint64_t base = 0, steps = 0;
    std::set<uint64_t> pushes;  // under way
    std::deque<Ended> ended;    // not told yet
    Ended told;
    bool asked = false, goes_on = false, tell_again = false;
  };
  static Due DueOf(TableId table, const OfTable& one);
  std::map<TableId, OfTable> of_;
  std::vector<uint64_t> staleness_;
};

}  // namespace cairn::client

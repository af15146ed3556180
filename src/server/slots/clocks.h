// How many steps each worker has finished in a bounded table, as it has told this shard thread
// (docs/internals/consistency.md, rules 56 to 58). What a worker has told stays true until it dies: nothing
// takes acknowledged pushes back. Bookkeeping; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "wire/cluster_state.h"

namespace cairn::server {

class Clocks {
 public:
  // Those who count are the state's workers that are in a view. One that has told nothing here yet may be
  // anywhere: its clock is taken for 0.
  void SetWorkers(const wire::ClusterState& state);
  bool Counts(Incarnation worker) const { return Find(worker) != nullptr; }
  // Requires Counts. A clock never goes back: an older one changes nothing. `done`: nobody waits for this
  // worker until it tells a higher one without that.
  void Told(Incarnation worker, Round clock, bool done);

  // Of all who count.
  Round lowest() const { return lowest_; }
  // Where somebody who comes later begins: the smallest clock that another one has told; 0 if none has.
  Round StartFor(Incarnation worker) const;
  // Who keeps those waiting that need this clock.
  std::vector<uint32_t> RanksBelow(Round clock) const;

 private:
  struct Worker {
    Incarnation incarnation;
    Rank rank;
    bool told = false, done = false;
    Round clock;
    // What others wait for.
    Round awaited() const;
  };
  Worker* Find(Incarnation incarnation);
  const Worker* Find(Incarnation incarnation) const;
  void Recount();

  std::vector<Worker> workers_;  // by rank
  Round lowest_;
};

}  // namespace cairn::server

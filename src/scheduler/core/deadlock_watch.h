// Workers that wait for each other and would for ever: some in a barrier, the others in rounds that wait
// for exactly those. Each of them says what it waits for (wire::Blocked) as long as all of its calls wait
// for other workers and its program does nothing else; where the waits form a cycle that has stayed the
// same for long enough, nothing but a death can end it. docs/internals/consistency.md, rule 54. No clock, no
// network.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "wire/control.h"

namespace cairn::scheduler {

class DeadlockWatch {
 public:
  // What the servers say of who is missing may be this old: nothing is certain sooner.
  static constexpr int64_t kLeastUs = 5'000'000;

  // after_us: 0: never. A report counts for fresh_us; workers repeat it with every heartbeat.
  DeadlockWatch(int64_t after_us, int64_t fresh_us);

  struct Worker {  // that is alive and in a view
    Incarnation incarnation;
    Rank rank;
    uint64_t barrier_count = 0;
  };

  void Take(const wire::Blocked& report, int64_t now_us);
  // What is to be said of a deadlock that has just become certain; empty otherwise.
  std::string Look(std::span<const Worker> workers, int64_t now_us);
  // What a worker that has just reported this is to be told: its calls can't end. It reports, and is told,
  // again until it has heard of it.
  std::optional<wire::Deadlock> Verdict(const wire::Blocked& report) const;

 private:
  struct Report {
    wire::Blocked said;
    int64_t at_us = 0;
  };
  using Stuck = std::map<uint32_t, const wire::Blocked*>;  // by rank

  Stuck FindStuck(std::span<const Worker> workers, int64_t now_us) const;
  std::string Describe(const Stuck& stuck) const;

  const int64_t after_us_, fresh_us_;
  std::map<Incarnation, Report> reports_;
  std::set<std::pair<Incarnation, uint64_t>> seen_;  // the waits that are stuck, and since when
  int64_t since_us_ = 0;
  std::map<Incarnation, wire::Deadlock> verdicts_;
};

}  // namespace cairn::scheduler

// What a seed stands for: topology, tables, how much work, how bad the network is. A pure function
// of the seed, so that a run can be named by one number.
#pragma once

#include <cstdint>
#include <vector>

#include "base/planted.h"
#include "cairn/types.h"
#include "scheduler/core/scheduler.h"
#include "server/slots/shard_bounds.h"
#include "transport/sim/faults.h"

namespace cairn::sim {

struct TablePlan {
  TableSpec spec;
  uint32_t ops = 0;     // pushes or rounds of each worker
  uint32_t window = 1;  // async: pushes in flight
  uint64_t keys = 16;   // sparse: size of the key space
  // Dense tables of floats.
  double masks = 0;   // how often a push leaves segments out
  double pieces = 0;  // how often an array lies in several pieces
  // Async: begins with values that somebody assigns and the others await. Sync: workers begin by
  // assigning a column, which has an effect only before the values are assigned.
  bool assign_once = false;
  double assign_rows = 0;  // sparse: how often rows are assigned; some of these only where they are missing
  // Rounds. What all workers must do alike is a function of the round: round_program.h.
  uint32_t assign_every = 0;  // every so many rounds one worker assigns; 0: never
  bool two_phase = false;     // most rounds have two phases
  uint32_t skip_every = 0;    // every so many of them are skipped; 0: none
  bool clips = false;         // the scale is a function of the report
  double not_finite = 0;      // how often a worker says that its gradient is not finite
  double value_scales = 0;    // how often values are scaled by the server
  bool joins = false;         // who has no more data joins until all have
};

struct Plan {
  uint64_t seed = 0;
  int severity = 0;          // 0 calm … 3 brutal
  bool lose_server = false;  // all owners of a slot are lost on purpose: the job must fail, and say so
  uint32_t servers = 1;
  std::vector<uint32_t> threads;  // of the servers, by machine, over and over again
  uint32_t replicas = 1, min_in_sync = 1;
  uint32_t late_servers = 0;  // join while the job runs
  uint32_t drains = 0;        // servers that want to go
  uint32_t scales = 0;        // times that another number of servers is asked for
  uint32_t schedulers = 1;    // more than one: with a key-value store instead of a log
  double kv_faults = 0;       // per call
  bool depose = false;        // a primary is replaced behind its back, and behind its workers' backs
  bool impatient = false;     // slots move for the least traffic
  bool settle = false;        // the job ends only when every slot has all of its owners again
  uint32_t slots = 8;
  uint32_t workers = 1;  // expected by the scheduler
  uint32_t late_workers = 0;
  std::vector<TablePlan> tables;
  bool churn_tables = false;  // tables are dropped and made anew while others use them
  bool rogue = false;         // pushes with NaN that the client never looked at
  bool hyper_mismatch = false;
  bool early_leave = false;
  bool short_deadlines = false;
  bool tells_of_ends = false;  // the launcher tells the scheduler of processes that have ended
  bool two_leaders = false;    // a scheduler that has been replaced, and does not know it, is found
  bool give_up = false;        // the launcher tells the scheduler of ranks that stay away
  uint32_t barriers = 0;
  uint32_t max_restarts = 3;
  double split = 0;  // how often a request is cut into more frames than needed
  uint64_t max_unacked_bytes = 0;
  uint64_t most_reserved_bytes = 0;    // of a client's callers, from before they copy
  uint64_t part_bytes = 0;             // values of a push of rows; from there on it goes in parts
  double trips = 0;                    // how often a lane opens one
  double push_pulls = 0;               // how often a push to an async table is a push-pull
  double closes = 0;                   // of a client, per second of its life while faults last
  uint32_t max_unacked_frames = 1024;  // of a client; servers remember as many refusals
  int64_t resend_after_us = 0;
  int64_t still_waiting_us = 0;
  // Replication.
  int64_t replica_resend_us = 0, slow_after_us = 0, hash_every_us = 0;
  uint64_t most_unconfirmed_bytes = 0;
  // Windows and queues: each of them tiny under some seeds.
  uint64_t early_budget = uint64_t{1} << 30;
  server::ShardBounds shard_bounds;
  scheduler::SchedulerBounds scheduler_bounds;
  int64_t think_us = 0;
  FaultProfile network;
  // How often, per simulated second while faults last.
  double partitions = 0, worker_kills = 0, scheduler_kills = 0, store_crashes = 0, pauses = 0, twins = 0;
  double server_kills = 0;    // for good or followed by another start
  double server_silence = 0;  // long pauses and partitions from the scheduler
  double server_cuts = 0;     // partitions between servers
  double scheduler_cuts = 0;  // of a scheduler from everybody
  bool only_cuts = false;     // nothing else goes wrong: so nobody may be taken for dead
  bool last_word = false;     // behind all that, the scheduler ends in the middle of telling and stays away
  uint32_t max_first_bytes = wire::kMaxUnauthenticatedBodyBytes;  // of a peer that is not accepted yet
  double sync_failures = 0;                                       // of the scheduler's log, per sync
  double lease_ends = 0;                                          // of schedulers' leases, before their time
  double slow_links = 0;                                          // share of pairs of servers
  double memory_faults = 0;  // per frame of operations that a backup is sent
  double slow = 0;           // share of nodes that are slow
  int64_t patience = 1;      // calls, and the whole run, may take so many times as long: there are many nodes
  int64_t lost_after_us = 0;
  int64_t heartbeat_us = 1'000'000, dead_after_us = 5'000'000;
  int64_t heal_us = 0;  // from here on nothing goes wrong any more
};

Plan MakePlan(uint64_t seed);

// Some planted bugs show only after two rare events, one right after the other. The hunt for such a bug makes
// these events frequent in each seed's plan, and runs the same plan without the bug, which must be clean.
// Leaves the plan as it is for all bugs that ordinary plans catch soon enough.
void AimAt(planted::Bug bug, Plan& plan);

}  // namespace cairn::sim

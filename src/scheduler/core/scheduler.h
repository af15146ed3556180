// The scheduler's state machine: registration, ranks, incarnations, heartbeats, views, slot map,
// tables, barriers, end of the job. docs/internals/consistency.md has its rules. No sockets, clocks or
// threads: a driver calls it from one thread with the time. Everything it decides goes to the
// MetaStore first and to the nodes second.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/log.h"
#include "cairn/status.h"
#include "scheduler/metastore/metastore.h"
#include "scheduler/placement/traffic.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace cairn::scheduler {

// Nodes tell it nothing larger.
inline constexpr uint32_t kMaxBodyToScheduler = uint32_t{1} << 20;

// Bounds that nobody has to set: the simulator draws them small.
struct SchedulerBounds {
  // A log of more than this, and of more than 8 records, is replaced by one record.
  uint64_t log_bytes = uint64_t{1} << 20;
  size_t recent_states = 16;    // nodes that are not further behind get differences
  size_t table_requests = 256;  // of a worker that are remembered; a client has no more under way
  size_t table_answers = 256;   // likewise, of this start of the scheduler
};

struct SchedulerOptions {
  std::string cluster_id;     // empty: one is made from `cluster_seed`
  uint64_t cluster_seed = 0;  // random number from the driver
  uint32_t expected_servers = 1;
  uint32_t expected_workers = 1;
  uint32_t slot_count = 256;
  uint32_t replicas = 1;     // owners of each slot; 0: two if there are two servers or more
  uint32_t min_in_sync = 1;  // with fewer owners in sync nothing is acknowledged
  wire::Endpoint endpoint;   // where it listens, for the log lines
  int64_t heartbeat_us = 1'000'000;
  int64_t dead_after_us = 5'000'000;
  // Partitions are not given up with a silent owner before this (or dead_after, if that is longer),
  // unless it is known to have ended.
  int64_t lost_after_us = 60'000'000;
  int64_t rejoin_grace_us = 30'000'000;  // a dead rank is given up after this, once all others are done
  // Workers that wait for each other so long are told (deadlock_watch.h); 0: never.
  int64_t deadlock_after_us = 60'000'000;
  TrafficOptions traffic;
  SchedulerBounds bounds;
  // Connections that are no node's: so many at a time, and each for so long after it last spoke.
  uint32_t max_callers = 1024;
  int64_t caller_idle_us = 30'000'000;
};

// What the simulator looks at. Called synchronously; must not call back.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;
  virtual void OnState(const wire::ClusterState& state) = 0;  // after each logged change
};

class Scheduler {
 public:
  // Replays the store. A term is logged before this returns. An error means that the scheduler
  // can't run (a damaged log, a full disk); the message says what to do.
  static Result<std::unique_ptr<Scheduler>> Start(const SchedulerOptions& options, MetaStore& store,
                                                  Network& network, BufferPool& pool, int64_t now_us,
                                                  LogLine log, SchedulerObserver* observer = nullptr);
  virtual ~Scheduler() = default;

  virtual void OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) = 0;
  virtual void OnDisconnect(ConnId conn, int64_t now_us) = 0;
  // At least every 100 ms, and better within this time, which is shorter while slots move.
  virtual void OnTick(int64_t now_us) = 0;
  virtual int64_t next_tick_us() const = 0;
  // The last call waited so long for the store, and nobody could be heard meanwhile: nobody's silence
  // of that time counts.
  virtual void OnWaited(int64_t waited_us) = 0;
  // Nobody has been heard for a whole detection time, which says nothing about them. Where there are
  // other schedulers, one of them may hear them: the driver lets it lead.
  virtual bool cut_off() const = 0;
  // The job has ended or failed and every server has confirmed or is dead: the process may exit.
  virtual bool finished() const = 0;
  // Not ok once the store has failed: the driver ends the process at once.
  virtual Status fatal() const = 0;
  virtual const wire::ClusterState& state() const = 0;
  // The cluster as one JSON object, for `cairn status`.
  virtual std::string StatusJson(int64_t now_us) = 0;
};

}  // namespace cairn::scheduler

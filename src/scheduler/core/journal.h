// The durable state, and its log: every change is logged, then installed, then told. After a failed append
// nothing may be said any more, since the record may be there or not. One thread.
#pragma once

#include <cstdint>

#include "cairn/status.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/metastore/metastore.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

class Journal {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // A record is logged and installed; `before` is the phase before it.
    virtual void OnCommitted(wire::Phase before) = 0;
    virtual void OnStoreFailed() = 0;
  };

  // `listener` and `store` must outlive it. The log starts over when it is larger than `log_bytes`, and
  // than a few of its records.
  Journal(MetaStore& store, uint64_t log_bytes, SchedulerObserver* observer, Listener& listener)
      : store_(store), log_bytes_bound_(log_bytes), observer_(observer), listener_(listener) {}

  // Reads the log. `if_empty`: what a new one begins with; it is not logged before the first Commit.
  Status Load(DurableState if_empty);
  bool was_empty() const { return was_empty_; }

  const DurableState& durable() const { return durable_; }
  const wire::ClusterState& state() const { return durable_.state; }
  DurableState Next() const;  // a copy with the next version, to be changed and committed
  // False: the store has failed. Requires what Next gave, changed.
  bool Commit(DurableState next);
  // A record that nobody is told of; it fails alone.
  Status CommitUntold(DurableState next);
  // Whether this is the newest state: what ends somebody's process must not rest on that of a scheduler that
  // was replaced and does not know it. kUnavailable: that is not known now. Otherwise as a failed Commit.
  Status Confirm();

  uint64_t commits() const { return commits_; }  // since the start
  Status fatal() const { return fatal_; }
  bool ok() const { return fatal_.ok(); }

 private:
  Status Persist(const DurableState& next);
  void Fail(const Status& why);
  void CheckFollows(const DurableState& next) const;

  MetaStore& store_;
  const uint64_t log_bytes_bound_;
  SchedulerObserver* const observer_;
  Listener& listener_;
  DurableState durable_;
  bool was_empty_ = false;
  uint64_t log_bytes_ = 0;
  uint64_t commits_ = 0;
  Status fatal_;
};

}  // namespace cairn::scheduler

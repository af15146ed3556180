// When one of several schedulers campaigns, keeps its lease alive, steps down or stands back; and what its
// driver hears of it. What it says is a hint; what may be written is decided by EtcdStore. No threads: a
// driver calls Step when the last one's time is over, or when `stands` has changed. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "base/log.h"
#include "cairn/status.h"
#include "scheduler/metastore/etcd_election.h"

namespace cairn::scheduler {

class Candidacy {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Another one leads, at this address; or nobody yet (empty).
    virtual void OnStandby(const std::string& leader) = 0;
    // This one leads; the leader key was created in this revision. Again only after it has stood back.
    virtual void OnWon(int64_t revision) = 0;
    // While it leads. False: etcd has not answered for as long as the lease lasts, so another one
    // may lead by now. True: it has answered again, and the lease was still there.
    virtual void OnEtcd(bool heard) = 0;
    // It has led and does so no more. Nothing comes after this.
    virtual void OnLost(Status why) = 0;
  };
  struct Options {
    int64_t ttl_us = 5'000'000;       // of the lease
    std::function<int64_t()> now_us;  // monotonic; required
    std::function<bool()> stopping;   // required; the driver is about to end: failures are not told any more
  };
  // There is nothing to do any more.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // `election`, `listener` and `log` must outlive it.
  Candidacy(EtcdElection& election, Options options, Listener& listener, const LogLine& log);

  // Asks etcd what there is to ask now. `stands`: whether it is a candidate at all. The time until the next
  // step.
  int64_t Step(bool stands);
  // At the end: so that the others need not wait for the lease to end.
  void Resign() { election_.Resign(); }
  bool leads() const { return leads_; }

 private:
  int64_t StandBack();
  int64_t Campaign();
  int64_t KeepAlive();
  void Complain(const Status& error);

  EtcdElection& election_;
  const Options options_;
  Listener& listener_;
  const LogLine& log_;
  bool leads_ = false, away_ = false, lost_ = false;
  int64_t heard_us_ = 0;  // when the last question that etcd has answered was asked
  std::optional<int64_t> complained_us_;
};

}  // namespace cairn::scheduler

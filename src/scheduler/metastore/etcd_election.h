// Who of several schedulers leads: whoever has made the key PREFIX/leader, which lives as long as
// its maker's lease. Leases and time decide only when somebody may try; that an old leader can't
// change anything is the store's doing (etcd_store.h). No threads and no clock: a driver calls
// Campaign every now and then until it has won, then KeepAlive. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/status.h"
#include "scheduler/metastore/kv.h"

namespace cairn::scheduler {

// The keys of one job.
std::string LeaderKey(const std::string& prefix);
std::string RecordKey(const std::string& prefix);

struct EtcdElectionOptions {
  std::string prefix;
  std::string address;  // the leader key's value: where this scheduler is, a hint for whoever asks
  int64_t ttl_s = 5;    // a leader that is not heard by etcd for so long loses the key
  int64_t call_timeout_us = 2'000'000;
};

class EtcdElection {
 public:
  struct Standing {
    int64_t revision = 0;  // above 0: this one leads; the leader key was created in it
    std::string leader;    // else where the leader says that it is; empty: nobody leads yet
  };

  EtcdElection(Kv& kv, EtcdElectionOptions options);

  // Looks who leads and, if nobody does, tries to. An error (etcd can't be reached, or the outcome
  // is not known): try again; a try that did win after all is found by the next one.
  Result<Standing> Campaign();

  // Requires to have won. The state of the leadership: true, false (the key is gone or somebody
  // else's, for good) or not known.
  Result<bool> KeepAlive();

  // Gives the key back, if this one has it or may have it, so that others need not wait.
  void Resign();

 private:
  Result<Standing> Create();

  Kv& kv_;
  const EtcdElectionOptions options_;
  int64_t lease_ = 0;     // the last one granted; the leader key is ours if it has this one
  int64_t revision_ = 0;  // of our leader key
};

}  // namespace cairn::scheduler

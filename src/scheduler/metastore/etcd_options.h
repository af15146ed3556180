// Where several schedulers of one job keep their state: one leads, the others stand by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/cluster_state.h"

namespace cairn::scheduler {

struct EtcdOptions {
  std::vector<wire::Endpoint> members;  // client addresses; empty: no etcd
  // Of the job's keys, which are of one job for ever. Empty: "/cairn", and the cluster id if there
  // is one.
  std::string prefix;
  int64_t ttl_s = 5;  // a leader that etcd does not hear for so long is replaced
};

}  // namespace cairn::scheduler

// What the environment says about this process: its role, where the scheduler is, how many nodes
// there are. One pure function from variables to a struct; the only place that knows the names of
// CAIRN_*, MS_* (MindSpore), PADDLE_* (Paddle) and DMLC_* (ps-lite) variables. docs/reference/environment.md
// has the table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "scheduler/metastore/etcd_options.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::cluster {

using Variables = std::map<std::string, std::string>;

// This process's environment. Read once, at the edge; everything else takes Variables.
Variables ProcessVariables();

// A field is empty where no variable gives it. A variable that is set to nothing counts as unset.
struct Environment {
  std::optional<wire::Role> role;  // kScheduler, kServer or kWorker
  std::optional<std::string> scheduler_host;
  std::optional<uint16_t> scheduler_port;  // 0: any free one (the scheduler's own process only)
  std::vector<wire::Endpoint> standbys;    // further schedulers: all but the first of CAIRN_SCHEDULER
  std::optional<uint32_t> servers, workers;
  std::optional<uint32_t> rank;     // wanted: a worker's rank or a server's index
  std::optional<std::string> host;  // to listen on
  std::optional<uint16_t> port;
  std::optional<std::string> cluster_id;
  std::optional<uint32_t> server_threads, slots;
  std::optional<uint32_t> replicas;  // owners of a slot; 0: as many as the number of servers suggests
  std::optional<uint32_t> min_in_sync;
  std::optional<std::string> state_dir;
  std::optional<std::string> meta;  // where the schedulers keep their state, as ParseMeta takes it
  std::optional<int64_t> heartbeat_ms, dead_after_ms, lost_after_ms, rejoin_grace_ms, connect_timeout_ms,
      call_timeout_ms;
  std::optional<int64_t> deadlock_after_ms;  // 0: never
  // Paddle has no scheduler process: the first server of its list hosts one, on its own port.
  bool hosts_scheduler = false;
  uint32_t verbose = 0;

  wire::Endpoint scheduler() const;                // the loopback address where no host is given
  std::vector<wire::Endpoint> schedulers() const;  // it, and then the standbys
};

// An error names the variable and its value; where two families give different values for the
// same thing it names both.
Result<Environment> ReadEnvironment(const Variables& variables);

// Takes out everything that says who a process is and where its cluster is, of every family, and
// leaves settings (timeouts, slots, threads). For a launcher, which says it anew.
void RemoveRoleVariables(Variables& variables);

// Ok if `environment` tells a worker or server where the scheduler is; the error names the
// variables that could.
Status RequireScheduler(const Environment& environment);

// "10.0.0.1:9000", "name:9000" or "[::1]:9000". `what` names it in the error.
Result<wire::Endpoint> ParseEndpoint(std::string_view what, std::string_view text);
// One or several of them, with commas between; each has a port above 0, and none comes twice.
Result<std::vector<wire::Endpoint>> ParseEndpoints(std::string_view what, std::string_view text);

// "etcd://10.0.0.1:2379,10.0.0.2:2379/name": the client addresses of etcd's members and, after the
// slash, the prefix of the job's keys.
Result<scheduler::EtcdOptions> ParseMeta(std::string_view what, std::string_view text);

}  // namespace cairn::cluster

// The whole cluster inside one process: scheduler and servers on threads of their own. For
// notebooks, tests and programs that have not outgrown one process yet; and for a job whose first
// worker hosts the cluster for the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/client.h"
#include "cairn/status.h"

namespace cairn {

struct EmbeddedOptions {
  uint32_t servers = 1;
  uint32_t workers = 1;
  uint32_t threads_per_server = 1;
  uint32_t slots = 256;
  // To listen on. Empty: 127.0.0.1, or ::1 on a machine that has IPv6 alone; "0.0.0.0" where workers come
  // from other machines.
  std::string host;
  uint16_t port = 0;           // the scheduler's; 0: any free one
  std::string advertise_host;  // where workers reach the servers; empty: host
  std::string cluster_id;      // empty: made up
  int64_t heartbeat_ms = 1'000;
  int64_t dead_after_ms = 5'000;
  int64_t lost_after_ms = 60'000;
  int64_t rejoin_grace_ms = 30'000;
  int64_t deadlock_after_ms = 60'000;  // workers that wait for each other so long get an error; 0: never

  // Settings from CAIRN_* variables: threads, slots, cluster id, times. Who runs where is not read.
  static Result<EmbeddedOptions> FromEnvironment();
};

class EmbeddedCluster {
 public:
  // Returns when scheduler and servers run; workers may connect then.
  static Result<std::unique_ptr<EmbeddedCluster>> Start(const EmbeddedOptions& options = {});
  // Ends everything; clients must be gone or will get errors.
  ~EmbeddedCluster();
  // Options with which a worker of this cluster connects. Connect() returns once all `workers`
  // have called it, so several workers connect from several threads.
  ClientOptions ClientOptionsFor(int32_t rank = -1) const;
  const std::string& scheduler_host() const;  // by which this process reaches it
  uint16_t scheduler_port() const;
  // Blocks until the job is over (ok, or kJobFailed with the cause) or Stop was called (ok).
  Status Wait();
  // Ends the scheduler and with it every Wait. From any thread.
  void Stop();

 private:
  class Impl;
  explicit EmbeddedCluster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

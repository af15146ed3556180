// The scheduler as a running node: a listener, a thread, the log (a file, or etcd), and the state
// machine of scheduler.h driven by real time. With etcd there may be several: until this one leads,
// it is a standby that refuses everybody and says who does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cairn/status.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/metastore/etcd_options.h"
#include "wire/cluster_state.h"

namespace cairn::transport {
class AcceptedConnection;  // transport/tcp/listener.h
}

namespace cairn::scheduler {

struct SchedulerNodeOptions {
  SchedulerOptions core;           // endpoint, cluster_seed are filled in by the node
  std::string host = "127.0.0.1";  // to listen on; "0.0.0.0" or an interface for several machines
  uint16_t port = 0;               // 0: any free one
  bool listen = true;              // false: connections come through Adopt only (a server's port)
  wire::Endpoint advertised;       // listen = false: what the log lines say
  std::string state_dir;           // the log lies here; empty: in memory, a killed scheduler ends the job
  EtcdOptions etcd;                // members: instead of state_dir, and there may be several schedulers
  std::function<void(const std::string&)> log;  // default: standard error
};

class SchedulerNode {
 public:
  // Listens and runs when this returns. A taken port is kUnavailable and says what to do. With etcd
  // it is a candidate then, whether etcd answers or not.
  static Result<std::unique_ptr<SchedulerNode>> Start(SchedulerNodeOptions options);
  virtual ~SchedulerNode() = default;  // stops
  virtual wire::Endpoint endpoint() const = 0;
  // A connection that another listener of this process accepted, with its first frame read. From
  // any thread.
  virtual void Adopt(transport::AcceptedConnection connection) = 0;
  // Blocks until the job is over (ok, or kJobFailed with the cause), Stop was called (ok), or the
  // node can't go on.
  virtual Status Wait() = 0;
  // After Wait: the status when the job was over, with every server's last report. Empty if it was
  // stopped before.
  virtual std::string final_status() const = 0;
  virtual void Stop() = 0;  // from any thread; async-signal-unsafe
};

}  // namespace cairn::scheduler

// A server as a running node: a listener, a control thread, and one thread per shard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cairn/status.h"
#include "server/control/server_control.h"
#include "server/shard/shard.h"
#include "wire/cluster_state.h"

namespace cairn::transport {
class AcceptedConnection;  // transport/tcp/listener.h
}

namespace cairn::server {

struct ServerNodeOptions {
  ServerControlOptions control;    // endpoint and threads are filled in by the node; the uid if it is 0
  std::string host = "127.0.0.1";  // to listen on
  std::string advertise_host;      // what workers are told; empty: host, or, where host is a wildcard,
                                   // the address of the interface that routes to the scheduler
  uint16_t advertise_port = 0;     // 0: the port it listens on (set it behind a proxy or a port mapping)
  uint16_t port = 0;               // 0: any free one
  uint32_t threads = 1;
  // Connections whose first frame is not a Hello: for a scheduler that shares this port.
  std::function<void(transport::AcceptedConnection)> on_other_connection;
  // Once it listens, before it tells anybody so.
  std::function<void(const wire::Endpoint&)> on_listening;
  std::function<void(const std::string&)> log;  // default: standard error
};

class ServerNode {
 public:
  // Listens and runs when this returns (registration goes on in the background).
  static Result<std::unique_ptr<ServerNode>> Start(ServerNodeOptions options);
  virtual ~ServerNode() = default;  // stops
  virtual wire::Endpoint endpoint() const = 0;
  // Until the job is over, Stop was called (ok), or an error.
  virtual Status Wait() = 0;
  virtual void Stop() = 0;  // from any thread; async-signal-unsafe
  // It has heard that the job runs: before, nothing is stored. From any thread.
  virtual bool job_begun() const = 0;
  // The job has other servers, as far as it has heard. From any thread.
  virtual bool has_peers() const = 0;
  // The same, but its slots move to other servers first; Wait ends with ok when it may go.
  virtual void Drain() = 0;
};

}  // namespace cairn::server

// The whole cluster inside one process: scheduler and servers on threads of their own, reached
// through loopback. For notebooks, tests and programs that have not outgrown one process yet.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/client.h"
#include "cairn/status.h"

namespace cairn {

struct EmbeddedOptions {
  uint32_t servers = 1;
  uint32_t workers = 1;
  uint32_t threads_per_server = 1;
  uint32_t slots = 256;
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
  uint16_t scheduler_port() const;

 private:
  class Impl;
  explicit EmbeddedCluster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

// A server that was told to go, in good order: its partitions move to other servers first. Watches
// that from a thread of its own, says how far it is, and ends it where it can't come to an end: with
// no other server, no scheduler, or after a time that was given.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "server/node/server_node.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

class Drain {
 public:
  // `node` must live longer.
  Drain(server::ServerNode& node, std::vector<wire::Endpoint> schedulers, int64_t timeout_ms);
  ~Drain();
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  // Once, from any thread; returns at once.
  void Begin();
  // It has been told to move away, and was not stopped before it could.
  bool in_good_order() const { return begun_ && !stopped_; }

 private:
  void Loop();
  // Why it can't be done; empty: it goes on.
  std::string Obstacle(int64_t now_ms);
  void StopBecause(const std::string& why);

  server::ServerNode& node_;
  const std::vector<wire::Endpoint> schedulers_;  // one of them leads
  const int64_t timeout_ms_;
  int64_t away_ms_;  // a scheduler that has not answered for so long does not come back
  std::atomic<bool> begun_ = false, stopped_ = false;
  int64_t begun_ms_ = 0, heard_ms_ = 0;
  bool others_seen_ = false;  // servers that stay, since it began
  std::string shown_;
  std::thread thread_;
  Mutex mutex_;
  Condition wake_;
  bool end_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::tool

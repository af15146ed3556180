// A server node's control side: registration, heartbeats, state, end of the job. A state machine;
// the driver carries states to the shards and the shards' reports back here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/log.h"
#include "cairn/status.h"
#include "server/control/shard_report.h"
#include "server/shard/shard.h"
#include "transport/network.h"
#include "wire/control.h"

namespace cairn::server {

struct ServerControlOptions {
  wire::Endpoint scheduler;
  std::vector<wire::Endpoint> standbys;  // further schedulers of the job: tried in turn with the first
  wire::Endpoint endpoint;               // where workers reach this server
  std::string cluster_id;                // empty: whatever cluster the scheduler has
  uint32_t threads = 1;
  int32_t wanted_rank = -1;
  uint64_t uid = 0;  // random, unique to this start
  int64_t heartbeat_us = 1'000'000;
  int64_t register_deadline_us = 600'000'000;  // gives up if no scheduler answers
  int64_t orphan_after_us = 600'000'000;       // leaves if the scheduler is not heard for so long
  std::function<MemoryLeft()> memory_left;     // asked for each heartbeat; empty: not known
};

class ServerControl {
 public:
  struct Events {
    std::function<void(uint32_t index, Incarnation)> on_registered;
    std::function<void(std::shared_ptr<const wire::ClusterState>)> on_state;  // to every shard
  };
  static std::unique_ptr<ServerControl> Make(const ServerControlOptions& options, Network& network,
                                             BufferPool& pool, Events events, LogLine log, int64_t now_us);
  virtual ~ServerControl() = default;

  virtual void OnConnected(ConnId conn, int64_t now_us) = 0;
  virtual void OnMessage(ConnId conn, const wire::InFrame& frame, int64_t now_us) = 0;
  virtual void OnDisconnect(ConnId conn, int64_t now_us) = 0;
  virtual void OnTick(int64_t now_us) = 0;
  // Every shard's newest report; sends a heartbeat at once if the oldest version or a hold changed.
  virtual void OnReports(const std::vector<ShardReport>& reports, int64_t now_us) = 0;

  // Asks to leave: the slots move away first; finished() follows when the scheduler lets go.
  virtual void Drain(int64_t now_us) = 0;

  virtual Term term() const = 0;  // the highest that was heard of
  // Set when the process should exit: ok after an orderly end, else why.
  virtual bool finished() const = 0;
  virtual Status result() const = 0;
};

}  // namespace cairn::server

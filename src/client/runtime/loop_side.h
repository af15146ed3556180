// The loop's side of a client: the thread with the sockets and the state machine (ClientCore), and what it
// shows to the callers' threads: the newest state and who this worker is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "base/log.h"
#include "base/mutex.h"
#include "cairn/client.h"
#include "client/protocol/client_core.h"
#include "client/protocol/user_waits.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/tcp_network.h"
#include "wire/cluster_state.h"

namespace cairn {

class LoopSide {
 public:
  LoopSide(const ClientOptions& options, std::shared_ptr<client::UserWaits> waits);

  // Makes the core and starts the thread; connecting is a call like others (ClientCore::Start). Once.
  void Start();
  // Ends every call under way, and the thread. Nothing may be begun after it. Not twice at a time.
  void Stop();

  // Any thread.
  const std::shared_ptr<transport::LoopTurn>& turn() const { return loop_.turn(); }
  std::shared_ptr<const wire::ClusterState> Snapshot() const;
  uint32_t rank() const { return rank_.load(std::memory_order_relaxed); }
  uint64_t incarnation() const { return incarnation_.load(std::memory_order_relaxed); }
  BufferPool& pool() { return pool_; }
  static int64_t NowUs() { return transport::Loop::NowUs(); }

  // Loop only, as all that follows.
  client::ClientCore& core() { return *core_; }
  const transport::TcpNetwork& network() const { return network_; }
  // The callers' threads prepare their requests with the core's state: after whatever may have changed it.
  void Publish();
  // Around every call of the core that ends later.
  void CallBegun() { ++calls_; }
  void CallEnded();
  // The callers' memory that these frames refer to is about to be given back.
  void Disown(std::span<const std::weak_ptr<wire::Frame>> frames);

 private:
  int64_t OnTick();

  static constexpr uint32_t kNoRank = ~uint32_t{0};

  const ClientOptions& options_;
  const std::shared_ptr<client::UserWaits> waits_;
  std::atomic<uint32_t> rank_{kNoRank};
  std::atomic<uint64_t> incarnation_{0};
  const LogLine log_;
  BufferPool pool_;
  transport::Loop loop_;
  transport::TcpNetwork network_;
  std::unique_ptr<client::ClientCore> core_;
  int64_t calls_ = 0;  // under way
  std::shared_ptr<const wire::ClusterState> published_;

  mutable Mutex mutex_;
  std::shared_ptr<const wire::ClusterState> snapshot_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

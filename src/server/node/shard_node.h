// One shard as a running thread: its loop, its connections and its state machine. The server node
// carries states and connections to it and hears its reports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "server/control/shard_report.h"
#include "server/shard/shard.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/tcp_network.h"

namespace cairn::server {

class ShardNode {
 public:
  // Called on the shard's loop: after each state, and when a ReportTimer says so.
  using OnReport = std::function<void(uint32_t thread, ShardReport)>;

  // `receipts` is that of the whole server and outlives it.
  ShardNode(const ShardOptions& options, transport::ReceiptBudget& receipts, OnReport on_report, LogLine log);
  ~ShardNode();  // ends the thread
  void Start();

  // From any thread.
  void Adopt(transport::AcceptedConnection connection);
  void Registered(uint32_t server_index, Incarnation incarnation);
  void State(std::shared_ptr<const wire::ClusterState> state);
  void CloseConnections();

 private:
  int64_t OnTick();
  void Report();

  const ShardOptions options_;
  const OnReport on_report_;
  BufferPool pool_;
  transport::Loop loop_;
  transport::TcpNetwork network_;
  std::unique_ptr<Shard> shard_;
  ReportTimer timer_;
};

}  // namespace cairn::server

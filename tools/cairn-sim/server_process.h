// A simulated server process: one control side and its shards, each with a port of its own, and
// between them what the real node's threads hand to each other, a little later.
#pragma once

#include <memory>
#include <vector>

#include "server/server_control.h"
#include "server/shard.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class ServerProcess final : public PortHandler {
 public:
  // `replacement`: started again after a crash, at the same address. The job can't use it.
  ServerProcess(World& world, uint32_t index, bool replacement = false);
  ~ServerProcess() override;
  int process() const { return process_; }
  uint32_t index() const { return index_; }
  bool gone() const { return gone_; }
  void set_gone();
  void Start();

  // The control side.
  void OnConnected(ConnId conn) override;
  void OnMessage(ConnId conn, wire::InFrame& frame) override;
  void OnDisconnect(ConnId conn) override;

 private:
  class ShardThread;
  void Tick();
  void AfterControl();
  void OnReport(uint32_t thread, const server::ShardReport& report);
  // To another thread of the process, in order.
  void Post(int64_t* last_us, std::function<void()> action);

  World& world_;
  uint32_t index_;
  int process_;
  Port* port_;
  bool replacement_;
  bool gone_ = false;
  std::unique_ptr<server::ServerControl> control_;
  std::vector<std::unique_ptr<ShardThread>> threads_;
  std::vector<server::ShardReport> reports_;
  int64_t last_report_us_ = 0;
};

}  // namespace cairn::sim

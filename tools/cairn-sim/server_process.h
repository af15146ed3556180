// A simulated server process: one control side and its shards, each with a port of its own, and
// between them what the real node's threads hand to each other, a little later. It stays in memory
// after its death: the checkers look at what it had.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/control/server_control.h"
#include "server/shard/shard.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class ServerProcess final : public PortHandler {
 public:
  struct Options {
    uint32_t number = 0;   // the keeper's: each start has another
    uint32_t machine = 0;  // where it runs: its host and endpoint
    uint32_t threads = 1;
    int32_t wanted_rank = -1;  // index
  };
  ServerProcess(World& world, const Options& options);
  ~ServerProcess() override;
  int process() const { return process_; }
  uint32_t number() const { return options_.number; }
  uint32_t machine() const { return options_.machine; }
  bool gone() const { return gone_; }
  void set_gone();
  void Start();
  void Drain();
  bool draining() const { return draining_; }
  uint64_t incarnation() const { return incarnation_; }  // 0: not registered yet
  uint64_t uid() const { return uid_; }
  // One of its shards is about to report that a backup is slow: that backup can't be relied on.
  bool CallsSomebodySlow() const;

  // The control side.
  void OnConnected(ConnId conn) override;
  void OnMessage(ConnId conn, wire::InFrame& frame) override;
  void OnDisconnect(ConnId conn) override;
  uint64_t MostAnswerBytes(ConnId, const wire::FrameHeader& header) const override {
    return wire::MostControlBytes(header);
  }

 private:
  class ShardThread;
  void Listen();
  void Tick();
  void AfterControl();
  void OnReport(uint32_t thread, const server::ShardReport& report);
  // To another thread of the process, in order.
  void Post(int64_t* last_us, std::function<void()> action);

  World& world_;
  const Options options_;
  int process_;
  Port* port_;
  bool gone_ = false, draining_ = false;
  uint64_t incarnation_ = 0, uid_ = 0;
  Term term_;
  std::unique_ptr<server::ServerControl> control_;
  std::vector<std::unique_ptr<ShardThread>> threads_;
  std::vector<server::ShardReport> reports_;
  int64_t last_report_us_ = 0;
};

}  // namespace cairn::sim

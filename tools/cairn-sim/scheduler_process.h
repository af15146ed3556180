// A simulated scheduler process: drives scheduler::Scheduler as the real node does.
#pragma once

#include <memory>

#include "scheduler/scheduler.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class SchedulerProcess final : public PortHandler {
 public:
  explicit SchedulerProcess(World& world);
  int process() const { return process_; }
  void Start();
  const scheduler::Scheduler* core() const { return core_.get(); }

  void OnConnected(ConnId) override {}
  void OnMessage(ConnId conn, wire::InFrame& frame) override;
  void OnDisconnect(ConnId conn) override;

 private:
  void Tick();
  void AfterCall();

  World& world_;
  int process_;
  Port* port_;
  std::unique_ptr<scheduler::Scheduler> core_;
};

}  // namespace cairn::sim

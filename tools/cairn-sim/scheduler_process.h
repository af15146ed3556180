// A simulated scheduler process: drives scheduler::Scheduler as the real node does. With a key-value
// store there are several, of which one leads; the others refuse everybody and try to.
#pragma once

#include <cstdint>
#include <memory>

#include "scheduler/core/leadership.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/metastore/etcd_election.h"
#include "scheduler/metastore/etcd_store.h"
#include "sim_kv.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class SchedulerProcess final : public PortHandler {
 public:
  SchedulerProcess(World& world, uint32_t number);
  int process() const { return process_; }
  uint32_t number() const { return number_; }
  void Start();
  bool leads() const { return core_ != nullptr; }

  void OnConnected(ConnId) override {}
  void OnMessage(ConnId conn, wire::InFrame& frame) override;
  void OnDisconnect(ConnId conn) override;

 private:
  scheduler::SchedulerOptions Options() const;
  void Lead(scheduler::MetaStore& store);
  void Campaign();
  // Both end with the reign that they were begun in.
  void KeepLease(uint64_t reign);
  void Tick(uint64_t reign);
  void Resign();
  void AfterCall();
  template <class Function>
  void Call(Function function);
  bool alive() const { return world_.fabric().alive(process_); }

  World& world_;
  const uint32_t number_;
  int process_;
  Port* port_;
  std::unique_ptr<SimKv> kv_;
  std::unique_ptr<scheduler::EtcdElection> election_;
  std::unique_ptr<scheduler::EtcdStore> store_;
  std::unique_ptr<scheduler::Scheduler> core_;
  int64_t etcd_heard_us_ = 0;
  bool told_silent_ = false;  // a candidate tells its scheduler of changes alone
  scheduler::Leadership leadership_;
  uint64_t reigns_ = 0;  // that have ended
};

}  // namespace cairn::sim

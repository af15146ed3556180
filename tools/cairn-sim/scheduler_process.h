// A simulated scheduler process: drives scheduler::Scheduler as the real node does. With a key-value
// store there are several, of which one leads; the others refuse everybody and try to, as the candidacy of
// the real node says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "scheduler/core/leadership.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/metastore/candidacy.h"
#include "scheduler/metastore/etcd_election.h"
#include "scheduler/metastore/etcd_store.h"
#include "sim_kv.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class SchedulerProcess final : public PortHandler, public scheduler::Candidacy::Listener {
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
  // The candidate, a thread of its own in the real node: steps when its time has come, or it is to resign or
  // to stand. `turn`: only the newest of those that were planned counts.
  void StepAfter(int64_t us);
  void Step(uint64_t turn);
  void OnStandby(const std::string&) override {}
  void OnWon(int64_t revision) override;
  void OnEtcd(bool heard) override;
  void OnLost(Status why) override;
  // Ends with the reign that it was begun in.
  void Tick(uint64_t reign);
  void Resign();
  void LeadFrom(int64_t revision);
  void AfterCall();
  template <class Function>
  void Call(Function function);
  bool alive() const { return world_.fabric().alive(process_); }

  World& world_;
  const uint32_t number_;
  int process_;
  Port* port_;
  const LogLine log_;
  std::unique_ptr<SimKv> kv_;  // the candidate's
  std::unique_ptr<SimKv> store_kv_;
  std::unique_ptr<scheduler::EtcdElection> election_;
  std::unique_ptr<scheduler::EtcdStore> store_;
  std::unique_ptr<scheduler::Scheduler> core_;
  std::unique_ptr<scheduler::Candidacy> candidacy_;
  uint64_t turn_ = 0;
  int64_t step_us_ = 0;        // when the last step began
  int64_t etcd_heard_us_ = 0;  // when the last one began in which etcd has answered everything
  scheduler::Leadership leadership_;
  uint64_t reigns_ = 0;  // that have ended
};

}  // namespace cairn::sim

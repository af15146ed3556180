// A simulated scheduler process: the real seat of a scheduler (scheduler/core/seat.h) and, with a key-value
// store, the real candidacy: then there are several, of which one leads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/core/seat.h"
#include "scheduler/metastore/candidacy.h"
#include "scheduler/metastore/etcd_election.h"
#include "scheduler/metastore/etcd_store.h"
#include "sim_kv.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class SchedulerProcess final : public PortHandler,
                               public scheduler::Candidacy::Listener,
                               private scheduler::SchedulerSeat::Driver {
 public:
  SchedulerProcess(World& world, uint32_t number);
  int process() const { return process_; }
  uint32_t number() const { return number_; }
  void Start();
  bool leads() const { return seat_.leads(); }

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
  void Tick();
  void LeadFrom(int64_t revision);
  // The store may be about to die with the process.
  void AfterCall();
  // SchedulerSeat::Driver.
  int64_t NowUs() const override { return world_.now_us(); }
  void Stand() override { StepAfter(0); }
  void StandBack() override;
  void EndReign(std::unique_ptr<scheduler::Scheduler> scheduler) override;
  void OnOver(const Status& why, bool at_once) override;
  bool dead() const override { return !alive(); }
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
  std::unique_ptr<scheduler::Candidacy> candidacy_;
  uint64_t turn_ = 0;
  int64_t step_us_ = 0;        // when the last step began
  int64_t etcd_heard_us_ = 0;  // when the last one began in which etcd has answered everything
  scheduler::SchedulerSeat seat_;
};

}  // namespace cairn::sim

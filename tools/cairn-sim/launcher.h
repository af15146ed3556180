// Starts workers, starts them again when they die, and tells the scheduler of those that stay away:
// what `cairn run` does for real processes.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/sim/fabric.h"
#include "worker_process.h"
#include "world.h"

namespace cairn::sim {

class Launcher final : public PortHandler {
 public:
  explicit Launcher(World& world);
  void Start();
  // A worker process has ended by itself.
  void OnExit(WorkerProcess& worker, const Status& status);
  // It knows that a process has ended, and tells the scheduler, sooner or later and more than once.
  void OnEnded(uint64_t uid);
  // For the chaos.
  void Kill(uint32_t number, bool silent);
  void StartTwin(uint32_t number);
  std::vector<uint32_t> Running() const;
  WorkerProcess* Find(uint32_t number) const;
  bool Over() const;
  std::string WhoIsLeft() const;

  void OnConnected(ConnId conn) override;
  void OnMessage(ConnId, wire::InFrame&) override {}
  void OnDisconnect(ConnId conn) override;

 private:
  struct Entry {
    int32_t wanted_rank = -1;
    uint32_t restarts = 0;
    bool waiting = false;  // a start is scheduled
    bool short_life = false;
    std::unique_ptr<WorkerProcess> process;
  };
  void StartAfter(uint32_t number, int64_t delay_us);
  void StartNow(uint32_t number);
  void Restart(uint32_t number);
  bool WantedByAnother(const Entry& entry, int32_t rank) const;
  void End(WorkerProcess& worker, bool silent);
  void Bury(Entry& entry);
  void GiveUp(int32_t rank);
  void TellScheduler();

  World& world_;
  int process_;
  Port* port_;
  ConnId conn_;
  bool connected_ = false;
  std::vector<Entry> entries_;
  std::set<uint32_t> given_up_;
  std::vector<uint64_t> ended_;  // uids of processes
  bool telling_ = false;
  std::vector<int> replaced_;  // processes whose rank a twin has taken
  Random random_;
};

}  // namespace cairn::sim

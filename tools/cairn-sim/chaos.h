// What goes wrong beyond single frames: partitions, crashes, pauses, slow nodes, twins. Strikes at
// random, as often as the plan says, until the world heals.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "server_process.h"
#include "world.h"

namespace cairn::sim {

class Chaos {
 public:
  explicit Chaos(World& world);
  void Start();

 private:
  void Tick();
  void Partition();
  void Pause();
  void KillWorker();
  void KillServer();
  void KillWithCompany(ServerProcess& server, bool restart);
  void SilenceServer();
  void KeepWorkersBehind(bool all);
  void Depose();
  void CutServers();
  void CutScheduler();
  void LoseOwners();
  void TwoLeaders();
  void Scheduler();
  ServerProcess* RandomServer();
  ServerProcess* Victim();
  int RandomHost();
  bool Strikes(double per_second);

  World& world_;
  Random random_;
  int64_t servers_quiet_until_us_ = 0;  // silence between servers and scheduler must not add up
  int64_t scheduler_cut_until_us_ = 0;
  int64_t lose_at_us_ = 0, depose_at_us_ = 0, two_leaders_at_us_ = 0;
};

}  // namespace cairn::sim

// Starts servers, starts others for those that die, lets them come and go while the job runs, and
// knows which of them are in good health: the chaos hurts no more of them at a time than the cluster
// can promise to survive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server_process.h"
#include "transport/sim/fabric.h"
#include "world.h"

namespace cairn::sim {

class ServerKeeper final : public PortHandler {
 public:
  explicit ServerKeeper(World& world);
  void Start();
  // A server process has ended by itself.
  void OnLeft(ServerProcess& server, const Status& result);

  const std::vector<std::unique_ptr<ServerProcess>>& all() const { return all_; }
  std::vector<ServerProcess*> Living() const;
  bool Over() const;
  std::string WhoIsLeft() const;
  // Dead at once, or after so many frames more. `restart`: another one comes in its place.
  void Kill(ServerProcess& server, uint64_t sends_left, bool restart, bool soon = false);
  // At once, if the job still survives it.
  void KillIfPossible(ServerProcess& server, bool restart);
  // Not to be relied on until then, and a little longer.
  void MarkHurt(const ServerProcess& server, int64_t until_us);
  bool Healthy(const ServerProcess& server) const;
  // The job survives it, whatever else is hurt now.
  bool MayHurt(const ServerProcess& server) const;
  // The running process that the state knows under this index; null if it is dead or another one.
  ServerProcess* Find(uint32_t index) const;
  bool hurting() const;   // somebody is not healthy
  bool awaiting() const;  // somebody is about to come, or to learn that others go on without it
  void AtHeal();

  void OnConnected(ConnId conn) override;
  void OnMessage(ConnId, wire::InFrame&) override {}
  void OnDisconnect(ConnId conn) override;

 private:
  uint32_t MostServers() const { return std::max(5u, world_.plan().servers); }  // at a time
  void MayHurtSoon();
  void CountHurt(const ServerProcess& server);
  bool Leaves(const ServerProcess& server) const;
  ServerProcess& StartOne(uint32_t machine, int32_t wanted_rank);
  void StartLater(uint32_t machine, int64_t delay_us);
  void Replace(const ServerProcess& server, bool soon);
  bool JobRuns() const;
  // Servers that come, go, or are asked for by a number.
  void PlanDeeds();
  void DrainOne();
  void ScaleTo(uint32_t servers);
  void TellScale();

  World& world_;
  Random random_;
  std::vector<std::unique_ptr<ServerProcess>> all_;
  std::map<uint32_t, int64_t> hurt_until_us_;  // by number
  uint32_t machines_ = 0;
  uint32_t starting_ = 0;
  int64_t joining_until_us_ = 0;
  uint32_t scale_ = 0;  // what was last asked for; 0: nothing
  int process_;
  Port* port_;
  ConnId conn_;
  bool connected_ = false;
};

}  // namespace cairn::sim

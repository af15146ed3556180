#include "server_keeper.h"

#include <algorithm>

#include "launcher.h"
#include "wire/control.h"

namespace cairn::sim {

namespace {
constexpr uint32_t kMostMachines = 80;           // ever
constexpr int64_t kConvalescenceUs = 4'000'000;  // heard again, streams made anew
constexpr int64_t kScaleEveryUs = 700'000;
constexpr int64_t kSettlingUs = 3'000'000;  // what one who comes or goes begins is under way
constexpr uint64_t kMostSendsLeft = 20;
}  // namespace

ServerKeeper::ServerKeeper(World& world) : world_(world), random_(Mix64(world.plan().seed, 77)) {
  process_ = world.fabric().AddProcess(kLauncherHost, "scaler");
  port_ =
      world.fabric().AddPort(process_, "scaler", Actor{.role = wire::Role::kTool, .index = 1}.Tag(), this);
}

bool ServerKeeper::JobRuns() const {
  const wire::Phase phase = world_.context().durable.phase;
  return phase == wire::Phase::kRunning || phase == wire::Phase::kForming;
}

ServerProcess& ServerKeeper::StartOne(uint32_t machine, int32_t wanted_rank) {
  const Plan& plan = world_.plan();
  ServerProcess::Options options;
  options.number = static_cast<uint32_t>(all_.size());
  options.machine = machine;
  options.threads = plan.threads[machine % plan.threads.size()];
  options.wanted_rank = wanted_rank;
  for (uint32_t s = 0; s < plan.schedulers; ++s)
    world_.fabric().LimitLosses(SchedulerHost(s), ServerHost(machine));
  all_.push_back(std::make_unique<ServerProcess>(world_, options));
  return *all_.back();
}

void ServerKeeper::Start() {
  const Plan& plan = world_.plan();
  for (uint32_t i = 0; i < plan.servers; ++i) {
    ServerProcess& server = StartOne(machines_++, static_cast<int32_t>(i));
    world_.queue().At(random_.Between(0, 1'000'000), [&server] { server.Start(); });
    if (random_.Chance(plan.slow)) {
      world_.faults().Add(Fault::kSlowNode);
      world_.fabric().SetLag(server.process(), random_.Between(5'000, 100'000));
    }
  }
  PlanDeeds();
}

void ServerKeeper::PlanDeeds() {
  const Plan& plan = world_.plan();
  for (uint32_t i = 0; i < plan.late_servers; ++i) {
    world_.queue().After(random_.Between(2'500'000, plan.heal_us), [this] {
      const bool running = world_.context().durable.phase == wire::Phase::kRunning;
      if (!running || Living().size() >= MostServers()) return;
      world_.context().deeds.Add(Deed::kServerJoins);
      StartLater(machines_++, 0);
      joining_until_us_ = world_.now_us() + kSettlingUs;
      MayHurtSoon();
    });
  }
  for (uint32_t i = 0; i < plan.drains; ++i)
    world_.queue().After(random_.Between(3'000'000, plan.heal_us), [this] { DrainOne(); });
  for (uint32_t i = 0; i < plan.scales; ++i) {
    world_.queue().After(random_.Between(3'000'000, plan.heal_us),
                         [this] { ScaleTo(static_cast<uint32_t>(random_.Between(1, 4))); });
  }
}

void ServerKeeper::StartLater(uint32_t machine, int64_t delay_us) {
  ++starting_;
  world_.queue().After(delay_us, [this, machine] {
    --starting_;
    if (JobRuns() && machine < kMostMachines) StartOne(machine, -1).Start();
  });
}

// Its successor knows nothing of what it had.
void ServerKeeper::Replace(const ServerProcess& server, bool soon) {
  const bool same = soon || random_.Chance(0.6);
  world_.faults().Add(Fault::kServerRestart);
  const int64_t most_us = soon ? 400'000 : same ? 6'000'000 : 3'000'000;
  StartLater(same ? server.machine() : machines_++, random_.Between(50'000, most_us));
}

// Somebody comes or goes: a good moment for another one to die.
void ServerKeeper::MayHurtSoon() {
  if (world_.plan().server_kills == 0 || !random_.Chance(0.9)) return;
  world_.queue().After(random_.Between(50'000, 800'000), [this] {
    std::vector<ServerProcess*> able;
    for (ServerProcess* server : Living())
      if (Healthy(*server) && MayHurt(*server)) able.push_back(server);
    if (world_.healed() || !JobRuns()) return;
    // Not now; as long as it is under way, a little later.
    if (able.empty()) {
      const auto living = Living();
      const bool leaves = std::ranges::any_of(living, [&](const ServerProcess* s) { return Leaves(*s); });
      return leaves || world_.now_us() < joining_until_us_ ? MayHurtSoon() : void();
    }
    world_.faults().Add(Fault::kServerCrash);
    const uint64_t sends_left = random_.Chance(0.5) ? 0 : 1 + random_.Below(kMostSendsLeft);
    Kill(*able[random_.Below(able.size())], sends_left, true);
  });
}

void ServerKeeper::CountHurt(const ServerProcess& server) {
  DeedCounts& deeds = world_.context().deeds;
  const wire::ClusterState& state = world_.context().durable;
  if (state.phase != wire::Phase::kRunning || world_.plan().lose_server) return;
  const auto living = Living();
  if (std::ranges::any_of(living, [&](const ServerProcess* s) { return s != &server && Leaves(*s); }))
    deeds.Add(Deed::kHurtWhileDraining);
  if (world_.now_us() < joining_until_us_) deeds.Add(Deed::kHurtWhileJoining);
  const bool copying = std::ranges::any_of(state.slots, [&](const wire::SlotOwner& owner) {
    return std::ranges::any_of(owner.backups, [&](const wire::Backup& backup) {
      return !backup.in_sync && Find(backup.server) != &server;
    });
  });
  if (copying) deeds.Add(Deed::kHurtWhileCopying);
}

// It wants to go, or is told to: it takes its copies with it.
bool ServerKeeper::Leaves(const ServerProcess& server) const {
  if (server.draining()) return true;
  return std::ranges::any_of(world_.context().durable.servers, [&](const wire::ServerInfo& info) {
    return info.leaving && info.incarnation.value == server.incarnation();
  });
}

void ServerKeeper::KillIfPossible(ServerProcess& server, bool restart) {
  if (server.gone()) return;
  hurt_until_us_[server.number()] = world_.now_us();
  if (!world_.healed() && MayHurt(server)) Kill(server, 0, restart);
}

void ServerKeeper::Kill(ServerProcess& server, uint64_t sends_left, bool restart, bool soon) {
  auto kill = [this, &server, silent = random_.Chance(0.3), restart, soon, fuse = sends_left > 0] {
    if (server.gone()) return;
    // Meanwhile it may have become the only one that can be relied on.
    if (fuse && !world_.plan().lose_server && !MayHurt(server)) {
      hurt_until_us_[server.number()] = world_.now_us();
      return world_.fabric().Unmute(server.process());
    }
    world_.fabric().Kill(server.process(), silent);
    server.set_gone();
    world_.launcher().OnEnded(server.uid());
    if (restart && JobRuns()) Replace(server, soon);
  };
  MarkHurt(server, INT64_MAX / 2);
  if (sends_left == 0) return kill();
  world_.fabric().DieAfterSends(server.process(), sends_left, kill);
}

void ServerKeeper::OnLeft(ServerProcess& server, const Status& result) {
  const Actor actor{.role = wire::Role::kServer, .index = server.number(), .process = server.process()};
  world_.Tell([&](Checker& c) { c.OnExit(actor, result); });
  world_.fabric().Kill(server.process(), false);
  server.set_gone();
  if (result.ok() && JobRuns()) world_.context().deeds.Add(Deed::kServerLeaves);
  // Declared dead while it lived: it is started again, as new.
  if (!result.ok() && JobRuns() && !server.draining() && Living().size() + starting_ < MostServers())
    Replace(server, false);
}

std::vector<ServerProcess*> ServerKeeper::Living() const {
  std::vector<ServerProcess*> living;
  for (const auto& server : all_)
    if (!server->gone()) living.push_back(server.get());
  return living;
}

bool ServerKeeper::Over() const { return Living().empty() && (starting_ == 0 || !JobRuns()); }

std::string ServerKeeper::WhoIsLeft() const {
  std::string text;
  for (const ServerProcess* server : Living())
    text += "; server " + std::to_string(server->number()) + "#" + std::to_string(server->incarnation()) +
            (server->draining() ? " draining" : "");
  return text;
}

void ServerKeeper::MarkHurt(const ServerProcess& server, int64_t until_us) {
  CountHurt(server);
  int64_t& until = hurt_until_us_[server.number()];
  until = std::max(until, until_us);
}

bool ServerKeeper::Healthy(const ServerProcess& server) const {
  auto hurt = hurt_until_us_.find(server.number());
  return !server.gone() &&
         (hurt == hurt_until_us_.end() || world_.now_us() > hurt->second + kConvalescenceUs);
}

bool ServerKeeper::hurting() const {
  for (const wire::ServerInfo& server : world_.context().durable.servers) {
    const ServerProcess* process = Find(server.index);
    if (process == nullptr || !Healthy(*process)) return true;
  }
  return false;
}

bool ServerKeeper::awaiting() const {
  return starting_ > 0 || Living().size() != world_.context().durable.servers.size();
}

ServerProcess* ServerKeeper::Find(uint32_t index) const {
  const wire::ServerInfo* info = world_.context().durable.FindServer(index);
  if (info == nullptr) return nullptr;
  for (const auto& server : all_)
    if (server->incarnation() == info->incarnation.value) return server->gone() ? nullptr : server.get();
  return nullptr;
}

// Looks at every slot that it owns: of the other owners on record one in sync must be healthy, and no
// more may be in trouble than `replicas` allows for.
bool ServerKeeper::MayHurt(const ServerProcess& server) const {
  const wire::ClusterState& state = world_.context().durable;
  if (state.phase != wire::Phase::kRunning || state.replicas < 2) return false;
  if (server.incarnation() == 0) return false;  // it may be on record, and not know it yet
  if (!world_.context().damaged.empty() || world_.log_uncertain()) return false;
  // Who will have to leave is not known yet.
  if (scale_ != 0 && state.expected_servers != scale_) return false;
  for (const ServerProcess* other : Living())
    if (other->CallsSomebodySlow()) return false;
  for (const wire::SlotOwner& owner : state.slots) {
    uint32_t healthy_in_sync = 0, unhealthy = 0;
    bool mine = false;
    auto look = [&](uint32_t index, bool in_sync) {
      const ServerProcess* process = Find(index);
      if (process == &server) {
        mine = true;
      } else if (process == nullptr || !Healthy(*process) || Leaves(*process)) {
        ++unhealthy;
      } else {
        healthy_in_sync += in_sync;
      }
    };
    look(owner.server, true);
    for (const wire::Backup& backup : owner.backups) look(backup.server, backup.in_sync);
    if (!mine) continue;
    if (healthy_in_sync == 0 || unhealthy + 2 > state.replicas) return false;
  }
  return true;
}

void ServerKeeper::DrainOne() {
  const wire::ClusterState& state = world_.context().durable;
  std::vector<ServerProcess*> able;
  for (ServerProcess* server : Living())
    if (server->incarnation() != 0 && !server->draining() && Healthy(*server)) able.push_back(server);
  for (const wire::ServerInfo& server : state.servers)
    if (server.leaving) return;  // the last one that stays may not go
  if (state.phase != wire::Phase::kRunning || able.size() < 2 || hurting()) return;
  world_.context().deeds.Add(Deed::kDrain);
  ServerProcess* server = able[random_.Below(able.size())];
  world_.Log("keeper", "server " + std::to_string(server->number()) + " drains");
  server->Drain();
  MayHurtSoon();
}

void ServerKeeper::ScaleTo(uint32_t servers) {
  if (world_.context().durable.phase != wire::Phase::kRunning || hurting()) return;
  world_.context().deeds.Add(Deed::kScale);
  scale_ = servers;
  const auto living = static_cast<uint32_t>(Living().size()) + starting_;
  for (uint32_t i = living; i < std::min(servers, MostServers()); ++i)
    StartLater(machines_++, random_.Between(0, 1'000'000));
  TellScale();
  MayHurtSoon();
}

// Repeats it until it is on record.
void ServerKeeper::TellScale() {
  if (!JobRuns() || world_.context().durable.expected_servers == scale_) return;
  if (connected_) {
    port_->Send(conn_, wire::EncodeControl(wire::Scale{1, scale_}, world_.pool()));
  } else {
    if (conn_.value != 0) port_->Close(conn_);
    const auto schedulers = world_.scheduler_endpoints();
    conn_ = port_->Connect(schedulers[random_.Below(schedulers.size())]);
  }
  world_.queue().After(kScaleEveryUs, [this] { TellScale(); });
}

// Somebody must be there to take over from those that leave, and as many as acknowledging takes.
void ServerKeeper::AtHeal() {
  if (!JobRuns()) return;
  uint32_t staying = starting_;
  for (const ServerProcess* server : Living()) staying += !server->draining();
  for (; staying < std::max(world_.plan().min_in_sync, 1u); ++staying) StartLater(machines_++, 0);
}

void ServerKeeper::OnConnected(ConnId conn) { connected_ = conn == conn_; }
void ServerKeeper::OnDisconnect(ConnId conn) {
  if (conn != conn_) return;
  connected_ = false;
  conn_ = {};
}

}  // namespace cairn::sim

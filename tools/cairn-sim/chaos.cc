#include "chaos.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "launcher.h"
#include "scheduler_process.h"
#include "server_keeper.h"
#include "sim_kv.h"

namespace cairn::sim {

namespace {
constexpr int64_t kTickUs = 100'000;
// Shorter than dead_after by far: with a heartbeat interval and a lost heartbeat on top a server
// must still be heard in time.
constexpr int64_t kShortSilenceUs = 1'200'000;
constexpr int64_t kBetweenSilencesUs = 3'500'000;
constexpr int64_t kLongSilenceUs = 11'000'000;  // declared dead, most of the time
constexpr int64_t kBetweenCutsUs = 10'500'000;  // everybody has come back, or has been missed
constexpr int64_t kForgottenUs = 1'500'000;     // a cut for so long
constexpr int64_t kFoundOneByOneUs = 2'500'000;
constexpr uint64_t kMostSendsLeft = 40;
constexpr int64_t kUnfoundUs = 3'300'000;  // two heartbeats, and another one to be found
constexpr int64_t kAwayUs = 2'500'000;
}  // namespace

Chaos::Chaos(World& world) : world_(world), random_(Mix64(world.plan().seed, 99)) {
  if (world.plan().lose_server) lose_at_us_ = random_.Between(2'000'000, 9'000'000);
  if (world.plan().two_leaders)
    two_leaders_at_us_ = Random(Mix64(world.plan().seed, 102)).Between(2'500'000, 7'000'000);
  if (world.plan().depose) depose_at_us_ = random_.Between(2'000'000, 7'000'000);
}

void Chaos::Start() {
  world_.queue().After(kTickUs, [this] { Tick(); });
}

bool Chaos::Strikes(double per_second) { return random_.Chance(per_second * (kTickUs / 1e6)); }

void Chaos::Tick() {
  if (world_.healed()) return;
  const Plan& plan = world_.plan();
  if (lose_at_us_ > 0 && world_.now_us() >= lose_at_us_) LoseOwners();
  if (depose_at_us_ > 0 && world_.now_us() >= depose_at_us_) Depose();
  if (two_leaders_at_us_ > 0 && world_.now_us() >= two_leaders_at_us_) TwoLeaders();
  if (Strikes(plan.partitions)) Partition();
  if (Strikes(plan.pauses)) Pause();
  if (Strikes(plan.worker_kills)) KillWorker();
  if (Strikes(plan.server_kills)) KillServer();
  if (Strikes(plan.server_silence)) SilenceServer();
  if (Strikes(plan.server_cuts)) CutServers();
  if (Strikes(plan.scheduler_cuts)) CutScheduler();
  Scheduler();
  if (Strikes(plan.twins)) {
    const auto running = world_.launcher().Running();
    if (!running.empty()) {
      world_.faults().Add(Fault::kTwin);
      world_.launcher().StartTwin(running[random_.Below(running.size())]);
    }
  }
  world_.queue().After(kTickUs, [this] { Tick(); });
}

void Chaos::Scheduler() {
  const Plan& plan = world_.plan();
  if (world_.etcd() != nullptr && Strikes(plan.lease_ends)) {
    world_.faults().Add(Fault::kKvLeaseLost);
    world_.etcd()->EndLeases();
  }
  if (world_.etcd() != nullptr && Strikes(plan.lease_ends)) {
    // One of the schedulers, perhaps the one that leads, can't reach the store; everybody else can.
    const auto& scheduler = world_.schedulers()[random_.Below(plan.schedulers)];
    if (scheduler != nullptr) {
      world_.faults().Add(Fault::kKvUnknown);
      world_.etcd()->CutOff(scheduler->process(), world_.now_us() + random_.Between(1'000'000, 12'000'000));
    }
  }
  if (!Strikes(plan.scheduler_kills)) return;
  const auto number = static_cast<uint32_t>(random_.Below(plan.schedulers));
  if (world_.schedulers()[number] == nullptr) return;
  world_.faults().Add(Fault::kSchedulerCrash);
  if (random_.Chance(0.5)) return world_.KillScheduler(number, true);
  // In the middle of what it tells.
  const int process = world_.schedulers()[number]->process();
  world_.fabric().DieAfterSends(process, 1 + random_.Below(kMostSendsLeft), [this, number, process] {
    const auto& now = world_.schedulers()[number];
    if (now != nullptr && now->process() == process) world_.KillScheduler(number, true);
  });
}

ServerProcess* Chaos::RandomServer() {
  const auto living = world_.keeper().Living();
  return living.empty() ? nullptr : living[random_.Below(living.size())];
}

int Chaos::RandomHost() {
  const Plan& plan = world_.plan();
  const auto living = world_.keeper().Living();
  const uint64_t workers = plan.workers + plan.late_workers;
  const uint64_t dice = random_.Below(1 + living.size() + workers);
  if (dice == 0) return SchedulerHost(static_cast<uint32_t>(random_.Below(plan.schedulers)));
  if (dice <= living.size()) return ServerHost(living[dice - 1]->machine());
  return WorkerHost(static_cast<uint32_t>(dice - 1 - living.size()));
}

// Between any two hosts; where a server's silence could have it declared dead, only for a short time.
void Chaos::Partition() {
  const int a = RandomHost(), b = RandomHost();
  const int low = std::min(a, b), high = std::max(a, b);
  if (a == b || high < ServerHost(0)) return;
  if (low >= ServerHost(0) && high < kLauncherHost) return;  // CutServers
  int64_t length = random_.Between(100'000, random_.Chance(0.3) ? 9'000'000 : 2'500'000);
  if (low < ServerHost(0) && high < kLauncherHost) {
    if (world_.now_us() < servers_quiet_until_us_) return;
    length = std::min(length, kShortSilenceUs);
    servers_quiet_until_us_ = world_.now_us() + kBetweenSilencesUs;
  }
  const bool one_way = random_.Chance(0.4), keep = random_.Chance(0.4);
  world_.faults().Add(one_way ? Fault::kOneWay : Fault::kPartition);
  world_.fabric().Block(a, b, world_.now_us() + length, keep);
  if (!one_way) world_.fabric().Block(b, a, world_.now_us() + length, keep);
}

void Chaos::Pause() {
  const int host = RandomHost();
  world_.faults().Add(Fault::kPause);
  if (host >= WorkerHost(0)) {
    WorkerProcess* worker = world_.launcher().Find(static_cast<uint32_t>(host - WorkerHost(0)));
    if (worker == nullptr) return;
    const int64_t length = random_.Between(100'000, random_.Chance(0.4) ? 9'000'000 : 1'500'000);
    world_.fabric().Pause(worker->process(), world_.now_us() + length);
    return;
  }
  if (world_.now_us() < servers_quiet_until_us_) return;
  servers_quiet_until_us_ = world_.now_us() + kBetweenSilencesUs;
  int64_t length = random_.Between(50'000, kShortSilenceUs);
  if (host < ServerHost(0)) {
    const auto& scheduler = world_.schedulers()[static_cast<size_t>(host)];
    // Where there are others, the lease may run out.
    if (world_.plan().schedulers > 1 && random_.Chance(0.5)) length = random_.Between(1'000'000, 9'000'000);
    if (scheduler != nullptr) world_.fabric().Pause(scheduler->process(), world_.now_us() + length);
    return;
  }
  for (ServerProcess* server : world_.keeper().Living())
    if (ServerHost(server->machine()) == host)
      world_.fabric().Pause(server->process(), world_.now_us() + length);
}

void Chaos::KillWorker() {
  const auto running = world_.launcher().Running();
  if (running.empty()) return;
  world_.faults().Add(Fault::kWorkerCrash);
  world_.launcher().Kill(running[random_.Below(running.size())], random_.Chance(0.3));
}

// Mostly one that has something to lose. Null if nobody may be hurt now.
ServerProcess* Chaos::Victim() {
  const wire::ClusterState& state = world_.context().durable;
  ServerProcess* server = RandomServer();
  if (!state.slots.empty() && random_.Chance(0.8))
    server = world_.keeper().Find(state.slots[random_.Below(state.slots.size())].server);
  if (server == nullptr || !world_.keeper().Healthy(*server) || !world_.keeper().MayHurt(*server))
    return nullptr;
  return server;
}

void Chaos::KillServer() {
  ServerProcess* server = Victim();
  if (server == nullptr) return;
  world_.faults().Add(Fault::kServerCrash);
  const bool restart = world_.plan().min_in_sync > 1 || random_.Chance(0.75);
  const uint64_t sends_left = random_.Chance(0.3) ? 0 : 1 + random_.Below(kMostSendsLeft);
  world_.Log("chaos", "server " + std::to_string(server->number()) + " dies after " +
                          std::to_string(sends_left) + " frames");
  if (random_.Chance(0.5)) return KillWithCompany(*server, restart);
  world_.keeper().Kill(*server, sends_left, restart);
}

// What makes a death hard to deal with: one other server did not hear the last of it, a worker comes
// back meanwhile, its own successor is there before anybody knows, or nobody can be told.
void Chaos::KillWithCompany(ServerProcess& server, bool restart) {
  ServerKeeper& keeper = world_.keeper();
  const uint64_t dice = random_.Below(4);
  if (dice == 0) KillWorker();
  if (dice == 1) {
    world_.faults().Add(Fault::kSchedulerCrash);
    for (uint32_t s = 0; s < world_.plan().schedulers; ++s) world_.KillScheduler(s, true);
  }
  const auto living = keeper.Living();
  ServerProcess* other = living[random_.Below(living.size())];
  if (dice != 2 || other == &server) return keeper.Kill(server, 0, restart, dice == 1);
  const int64_t cut_us = random_.Between(20'000, 700'000);
  world_.faults().Add(Fault::kServersCut);
  keeper.MarkHurt(server, INT64_MAX / 2);
  keeper.MarkHurt(*other, world_.now_us() + cut_us);
  world_.fabric().Block(ServerHost(server.machine()), ServerHost(other->machine()), world_.now_us() + cut_us,
                        false);
  world_.queue().After(cut_us, [&keeper, &server, restart] { keeper.KillIfPossible(server, restart); });
}

// Some workers hear of what happened later than others: they go on with whom they know. (A shard that
// has an older state than its workers does nothing for them, so they must not hear of anything else.)
void Chaos::KeepWorkersBehind(bool all) {
  if (world_.healed()) return;
  const Plan& plan = world_.plan();
  const bool keep = random_.Chance(0.5);
  for (uint32_t w = 0; w < plan.workers + plan.late_workers; ++w) {
    if (!all && random_.Chance(0.4)) continue;
    const int64_t until = world_.now_us() + random_.Between(all ? 5'500'000 : 2'000'000, 6'500'000);
    world_.Log("chaos",
               "worker " + std::to_string(w) + " does not hear the scheduler until " + std::to_string(until));
    for (uint32_t s = 0; s < plan.schedulers; ++s)
      world_.fabric().Block(SchedulerHost(s), WorkerHost(w), until, keep);
  }
}

void Chaos::SilenceServer() {
  ServerProcess* server = Victim();
  if (server == nullptr) return;
  world_.faults().Add(Fault::kServerSilent);
  world_.context().silenced.insert(server->incarnation());
  const int64_t least = random_.Chance(0.7) ? 6'000'000 : 1'500'000;
  const int64_t until = world_.now_us() + random_.Between(least, kLongSilenceUs);
  world_.keeper().MarkHurt(*server, until);
  world_.Log("chaos",
             "server " + std::to_string(server->number()) + " falls silent until " + std::to_string(until));
  if (random_.Chance(0.3)) return world_.fabric().Pause(server->process(), until);
  // Workers and other servers still reach it: it may go on as if nothing had happened.
  if (random_.Chance(0.7))
    world_.queue().After(random_.Between(0, random_.Chance(0.5) ? 4'000'000 : 800'000),
                         [this] { KeepWorkersBehind(random_.Chance(0.5)); });
  if (random_.Chance(0.3))
    world_.queue().After(random_.Between(500'000, 4'000'000), [this] {
      if (!world_.healed()) KillWorker();
    });
  const bool keep = random_.Chance(0.4);
  const uint64_t way = random_.Below(3);
  world_.Log("chaos", "server " + std::to_string(server->number()) + " is cut off from the scheduler" +
                          (way == 1   ? ": can't hear"
                           : way == 2 ? ": can't be heard"
                                      : ""));
  for (uint32_t s = 0; s < world_.plan().schedulers; ++s) {
    if (way != 1) world_.fabric().Block(ServerHost(server->machine()), SchedulerHost(s), until, keep);
    if (way != 2) world_.fabric().Block(SchedulerHost(s), ServerHost(server->machine()), until, keep);
  }
}

// A primary and its workers go on together while the scheduler gives its slots to others.
void Chaos::Depose() {
  ServerProcess* server = Victim();
  if (server == nullptr) return;  // a little later, perhaps
  depose_at_us_ = 0;
  world_.faults().Add(Fault::kServerSilent);
  world_.context().silenced.insert(server->incarnation());
  world_.Log("chaos", "server " + std::to_string(server->number()) + " is to be deposed");
  const int64_t until = world_.now_us() + random_.Between(7'000'000, 12'000'000);
  world_.keeper().MarkHurt(*server, until);
  for (uint32_t s = 0; s < world_.plan().schedulers; ++s) {
    world_.fabric().Block(ServerHost(server->machine()), SchedulerHost(s), until, false);
    world_.fabric().Block(SchedulerHost(s), ServerHost(server->machine()), until, false);
  }
  KeepWorkersBehind(true);
}

// Both are heard by the scheduler, and each may call the other slow.
void Chaos::CutServers() {
  ServerProcess *a = RandomServer(), *b = RandomServer();
  ServerKeeper& keeper = world_.keeper();
  if (a == nullptr || a == b || !keeper.MayHurt(*a) || !keeper.MayHurt(*b)) return;
  const int ha = ServerHost(a->machine()), hb = ServerHost(b->machine());
  const int64_t until = world_.now_us() + random_.Between(200'000, kLongSilenceUs);
  keeper.MarkHurt(*a, until);
  keeper.MarkHurt(*b, until);
  if (random_.Chance(world_.plan().slow_links)) {
    world_.faults().Add(Fault::kSlowLink);
    world_.fabric().SlowLink(ha, hb, random_.Between(20'000, 900'000));
    return;
  }
  world_.faults().Add(Fault::kServersCut);
  const bool one_way = random_.Chance(0.4), keep = random_.Chance(0.4);
  world_.fabric().Block(ha, hb, until, keep);
  if (!one_way) world_.fabric().Block(hb, ha, until, keep);
}

// One of them, from all nodes: those of its own silence it may not blame. (With several it may still
// reach the store.)
void Chaos::CutScheduler() {
  const Plan& plan = world_.plan();
  if (world_.now_us() < scheduler_cut_until_us_) return;
  auto number = static_cast<uint32_t>(random_.Below(plan.schedulers));
  for (uint32_t s = 0; s < plan.schedulers; ++s)  // mostly the one that leads
    if (world_.schedulers()[s] != nullptr && world_.schedulers()[s]->leads() && random_.Chance(0.8))
      number = s;
  const int scheduler = SchedulerHost(number);
  const int64_t length =
      random_.Chance(0.5) ? random_.Between(300'000, 5'500'000) : random_.Between(5'500'000, 14'000'000);
  // What is kept back comes then, even if all else heals before.
  const int64_t until = std::min(world_.now_us() + length, plan.heal_us);
  scheduler_cut_until_us_ = until + kBetweenCutsUs;
  const bool keep = random_.Chance(0.4);
  world_.faults().Add(Fault::kSchedulerCut);
  world_.Log("chaos", "scheduler " + std::to_string(scheduler) + " is cut off from everybody until " +
                          std::to_string(until));
  // A network that was down for long may find its machines one after the other. After less than two
  // heartbeats that is each machine's own silence (rule 5).
  const int64_t long_us = std::max(kForgottenUs, 2 * plan.heartbeat_us);
  const int64_t spread_us = length >= long_us && random_.Chance(0.5) ? kFoundOneByOneUs : 0;
  auto cut = [&](int host) {
    const int64_t found = std::min(until + random_.Between(0, spread_us), plan.heal_us);
    world_.fabric().Block(scheduler, host, found, keep);
    world_.fabric().Block(host, scheduler, found, keep);
  };
  for (int machine = 0; ServerHost(static_cast<uint32_t>(machine)) < kLauncherHost; ++machine)
    cut(ServerHost(static_cast<uint32_t>(machine)));
  cut(kLauncherHost);
  for (uint32_t w = 0; w < plan.workers + plan.late_workers; ++w) cut(WorkerHost(w));
}

// The one that leads loses its lease and can't reach the store, so it does not learn that another one leads.
// Nobody can reach it for a while, so all turn to the other one; and then that one dies.
void Chaos::TwoLeaders() {
  const auto& schedulers = world_.schedulers();
  auto leads = [](const auto& s) { return s != nullptr && s->leads(); };
  const auto leader = std::ranges::find_if(schedulers, leads);
  if (leader == schedulers.end()) return;  // a little later, perhaps
  two_leaders_at_us_ = 0;
  const auto old = static_cast<uint32_t>(leader - schedulers.begin());
  const int process = (*leader)->process();
  world_.etcd()->EndLeases();
  world_.etcd()->CutOff(process, world_.now_us() + 7'000'000);
  const int64_t until = world_.now_us() + kUnfoundUs;
  for (int host = ServerHost(0); host < WorkerHost(world_.plan().workers + world_.plan().late_workers);
       ++host) {
    world_.fabric().Block(SchedulerHost(old), host, until, false);
    world_.fabric().Block(host, SchedulerHost(old), until, false);
  }
  world_.queue().After(kUnfoundUs, [this, old, process] {
    const auto& all = world_.schedulers();
    const bool still = all[old] != nullptr && all[old]->process() == process && all[old]->leads();
    if (world_.healed() || !still) return;
    for (uint32_t s = 0; s < all.size(); ++s) {
      if (s == old || all[s] == nullptr || !all[s]->leads()) continue;
      world_.faults().Add(Fault::kTwoLeaders);
      world_.KillScheduler(s, kAwayUs);
    }
  });
}

// More than can be survived: every owner of a slot that is in sync, at once.
void Chaos::LoseOwners() {
  lose_at_us_ = 0;
  const wire::ClusterState& state = world_.context().durable;
  if (state.phase != wire::Phase::kRunning) return;
  const wire::SlotOwner& owner = state.slots[random_.Below(state.slots.size())];
  std::vector<uint32_t> indexes{owner.server};
  for (const wire::Backup& backup : owner.backups) indexes.push_back(backup.server);
  world_.faults().Add(Fault::kOwnersLost);
  const bool silent = random_.Chance(0.2);
  for (uint32_t index : indexes) {
    ServerProcess* server = world_.keeper().Find(index);
    if (server == nullptr) continue;
    if (silent) {
      // Alive, but so long away that they are declared dead.
      const int64_t until = world_.now_us() + world_.plan().lost_after_us + 20'000'000;
      world_.keeper().MarkHurt(*server, until);
      world_.fabric().Pause(server->process(), until);
      continue;
    }
    world_.faults().Add(Fault::kServerCrash);
    world_.keeper().Kill(*server, 0, random_.Chance(0.5));
  }
}

}  // namespace cairn::sim

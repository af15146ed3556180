#include "chaos.h"

#include <algorithm>
#include <utility>

#include "launcher.h"
#include "scheduler_process.h"
#include "server_process.h"

namespace cairn::sim {

namespace {
constexpr int64_t kTickUs = 100'000;
// Shorter than dead_after by far: with a heartbeat interval and a lost heartbeat on top a server
// must still be heard in time.
constexpr int64_t kServerSilenceUs = 1'200'000;
constexpr int64_t kBetweenSilencesUs = 3'500'000;
}  // namespace

Chaos::Chaos(World& world) : world_(world), random_(Mix64(world.plan().seed, 99)) {
  if (world.plan().lose_server) lose_at_us_ = random_.Between(2'000'000, 9'000'000);
}

void Chaos::Start() {
  world_.queue().After(kTickUs, [this] { Tick(); });
}

bool Chaos::Strikes(double per_second) { return random_.Chance(per_second * (kTickUs / 1e6)); }

void Chaos::Tick() {
  if (world_.healed()) return;
  const Plan& plan = world_.plan();
  if (lose_at_us_ > 0 && world_.now_us() >= lose_at_us_) LoseServer();
  if (Strikes(plan.partitions)) Partition();
  if (Strikes(plan.pauses)) Pause();
  if (Strikes(plan.worker_kills)) KillWorker();
  if (Strikes(plan.scheduler_kills) && world_.scheduler() != nullptr) {
    world_.faults().Add(Fault::kSchedulerCrash);
    world_.KillScheduler(true);
  }
  if (Strikes(plan.twins)) {
    const auto running = world_.launcher().Running();
    if (!running.empty()) {
      world_.faults().Add(Fault::kTwin);
      world_.launcher().StartTwin(running[random_.Below(running.size())]);
    }
  }
  world_.queue().After(kTickUs, [this] { Tick(); });
}

int Chaos::RandomHost() {
  const Plan& plan = world_.plan();
  const uint64_t workers = plan.workers + plan.late_workers;
  const uint64_t dice = random_.Below(1 + plan.servers + workers);
  if (dice == 0) return kSchedulerHost;
  if (dice <= plan.servers) return ServerHost(static_cast<uint32_t>(dice - 1));
  return WorkerHost(static_cast<uint32_t>(dice - 1 - plan.servers));
}

void Chaos::Partition() {
  const int a = RandomHost(), b = RandomHost();
  if (a == b) return;
  const bool control = std::min(a, b) == kSchedulerHost && std::max(a, b) < kLauncherHost;
  int64_t length = random_.Between(100'000, random_.Chance(0.3) ? 9'000'000 : 2'500'000);
  if (control) {
    if (world_.now_us() < servers_quiet_until_us_) return;
    length = std::min(length, kServerSilenceUs);
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
  const int64_t until = world_.now_us() + random_.Between(50'000, kServerSilenceUs);
  if (host == kSchedulerHost) {
    if (world_.scheduler() != nullptr) world_.fabric().Pause(world_.scheduler()->process(), until);
  } else {
    world_.fabric().Pause(world_.servers()[static_cast<size_t>(host - ServerHost(0))]->process(), until);
  }
}

void Chaos::KillWorker() {
  const auto running = world_.launcher().Running();
  if (running.empty()) return;
  world_.faults().Add(Fault::kWorkerCrash);
  world_.launcher().Kill(running[random_.Below(running.size())], random_.Chance(0.3));
}

void Chaos::LoseServer() {
  lose_at_us_ = 0;
  if (world_.context().durable.phase != wire::Phase::kRunning) return;
  const auto index = static_cast<uint32_t>(random_.Below(world_.plan().servers));
  if (world_.servers()[index]->gone()) return;
  if (random_.Chance(0.3)) {
    // Alive, but silent for so long that it is declared dead.
    world_.faults().Add(Fault::kPause);
    world_.fabric().Pause(world_.servers()[index]->process(), world_.now_us() + 9'000'000);
    return;
  }
  world_.faults().Add(Fault::kServerCrash);
  world_.KillServer(index);
  if (random_.Chance(0.4)) {
    world_.queue().After(random_.Between(200'000, 3'000'000), [this, index] { world_.RestartServer(index); });
  }
}

}  // namespace cairn::sim

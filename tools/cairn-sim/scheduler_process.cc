#include "scheduler_process.h"

#include <utility>

namespace cairn::sim {

namespace {
constexpr int64_t kSchedulerTickUs = 100'000;
constexpr int64_t kLeaseSeconds = 5;
constexpr int64_t kLeaseUs = kLeaseSeconds * 1'000'000;
constexpr int64_t kFirstCampaignUs = 500'000;

std::string NameOf(uint32_t number) {
  return number == 0 ? "scheduler" : "scheduler " + std::to_string(number);
}
}  // namespace

SchedulerProcess::SchedulerProcess(World& world, uint32_t number)
    : world_(world),
      number_(number),
      process_(world.fabric().AddProcess(SchedulerHost(number), NameOf(number))),
      port_(world.fabric().AddPort(process_, NameOf(number),
                                   Actor{.role = wire::Role::kScheduler, .index = number}.Tag(), this)),
      log_([this](const std::string& line) { world_.Log("scheduler " + std::to_string(number_), line); }),
      seat_({.several = world.etcd() != nullptr, .lost_after_us = world.plan().lost_after_us}, *port_,
            world.pool(), log_, *this) {}

scheduler::SchedulerOptions SchedulerProcess::Options() const {
  const Plan& plan = world_.plan();
  scheduler::SchedulerOptions options;
  options.cluster_seed = plan.seed + 1;
  options.expected_servers = plan.servers;
  options.expected_workers = plan.workers;
  options.slot_count = plan.slots;
  options.replicas = plan.replicas;
  options.min_in_sync = plan.min_in_sync;
  options.endpoint = world_.scheduler_endpoints()[number_];
  options.rejoin_grace_us = 8'000'000;
  options.bounds = plan.scheduler_bounds;
  options.lost_after_us = plan.lost_after_us;
  options.heartbeat_us = plan.heartbeat_us;
  options.dead_after_us = plan.dead_after_us;
  if (plan.impatient) options.traffic = {1.1, 1, 1'000'000, 2'000'000, 2'000'000, 20'000'000};
  return options;
}

void SchedulerProcess::Start() {
  world_.fabric().Listen(process_, world_.scheduler_endpoints()[number_],
                         [port = port_](const wire::InFrame&) { return port; },
                         {.max_body_bytes = scheduler::kMaxBodyToScheduler,
                          .max_first_bytes = world_.plan().max_first_bytes,
                          .accepts = wire::IsForNodes});
  Tick();
  if (world_.etcd() == nullptr) return Lead(world_.store());
  kv_ = std::make_unique<SimKv>(world_, *world_.etcd(), process_, world_.random().Next());
  scheduler::EtcdElectionOptions options;
  options.prefix = kEtcdPrefix;
  options.address = wire::ToString(world_.scheduler_endpoints()[number_]);
  options.ttl_s = kLeaseSeconds;
  election_ = std::make_unique<scheduler::EtcdElection>(*kv_, options);
  candidacy_ = std::make_unique<scheduler::Candidacy>(
      *election_,
      scheduler::Candidacy::Options{.ttl_us = kLeaseUs,
                                    .now_us = [this] { return world_.now_us(); },
                                    .stopping = [this] { return !alive(); }},
      *this, log_);
  StepAfter(world_.random().Between(0, kFirstCampaignUs));
}

void SchedulerProcess::StepAfter(int64_t us) {
  world_.fabric().Run(process_, world_.now_us() + us, [this, turn = ++turn_] { Step(turn); });
}

void SchedulerProcess::Step(uint64_t turn) {
  if (turn != turn_) return;
  step_us_ = world_.now_us();
  const uint64_t unanswered = kv_->unanswered();
  const int64_t pause_us = candidacy_->Step(!seat_.resigned());
  if (!alive() || pause_us == scheduler::Candidacy::kNever) return;
  if (kv_->unanswered() == unanswered) etcd_heard_us_ = step_us_;
  const bool silent = world_.now_us() - etcd_heard_us_ >= kLeaseUs;
  if (silent && candidacy_->leads() && seat_.answers())
    world_.context().report("leader-answers", "scheduler " + std::to_string(number_) +
                                                  " has not heard etcd for as long as its lease lasts, and "
                                                  "goes on as the leader");
  if (turn == turn_) StepAfter(pause_us);
}

// Handled behind what the scheduler has to do already, like everything that the candidate says.
void SchedulerProcess::OnWon(int64_t revision) {
  etcd_heard_us_ = step_us_;
  world_.fabric().Run(process_, world_.now_us(), [this, revision] { LeadFrom(revision); });
}

void SchedulerProcess::OnEtcd(bool heard) {
  seat_.OnEtcd(heard);
  AfterCall();
}

void SchedulerProcess::OnLost(Status why) { seat_.OnLost(why); }

void SchedulerProcess::LeadFrom(int64_t revision) {
  seat_.OnWon();
  if (world_.context().durable.term.value > 0) world_.context().deeds.Add(Deed::kNewLeader);
  world_.Log("scheduler " + std::to_string(number_), "leads, revision " + std::to_string(revision));
  store_kv_ = std::make_unique<SimKv>(world_, *world_.etcd(), process_, world_.random().Next());
  scheduler::EtcdStoreOptions options;
  options.prefix = kEtcdPrefix;
  options.leader_revision = revision;
  options.now_us = [kv = store_kv_.get()] { return kv->now_us(); };
  options.pause = [kv = store_kv_.get()](int64_t us) { kv->Pause(us); };
  store_ = std::make_unique<scheduler::EtcdStore>(*store_kv_, options);
  Lead(*store_);
}

void SchedulerProcess::EndReign(std::unique_ptr<scheduler::Scheduler> scheduler) {
  world_.context().deeds.Add(Deed::kResigned);
  world_.Log("scheduler " + std::to_string(number_), "resigns: it hears nobody");
  world_.Dispose([dead = std::shared_ptr<scheduler::Scheduler>(std::move(scheduler))] {});
}

void SchedulerProcess::StandBack() {
  // The real candidate is a thread of its own: what it has asked etcd may be answered, or given up, later.
  if (world_.random().Chance(0.5))
    world_.fabric().Run(process_, world_.now_us() + world_.random().Between(1'000, 1'500'000), [this] {
      if (!leads()) OnEtcd(false);
    });
  StepAfter(0);
}

void SchedulerProcess::Lead(scheduler::MetaStore& store) {
  auto started = scheduler::Scheduler::Start(
      Options(), store, *port_, world_.pool(), world_.now_us(), [this](const std::string& line) {
        world_.Log("scheduler", line);
        if (line.find("times the work of the mean") != std::string::npos)
          world_.context().deeds.Add(Deed::kMovedForTraffic);
      });
  if (!alive()) return;
  if (!started.ok()) {
    // Dying inside the append of its first record is no violation, nor is being replaced meanwhile.
    const Code code = started.status().code();
    const bool excused = code == Code::kIo || (world_.etcd() != nullptr && code != Code::kInvalidArgument);
    if (!excused)
      world_.context().report("liveness", "the scheduler can't start: " + started.status().ToString());
    return world_.KillScheduler(number_, true);
  }
  seat_.Lead(std::move(started).value());
  AfterCall();
}

void SchedulerProcess::Tick() {
  seat_.OnTick();
  AfterCall();
  if (alive()) world_.fabric().Run(process_, world_.now_us() + kSchedulerTickUs, [this] { Tick(); });
}

void SchedulerProcess::OnMessage(ConnId conn, wire::InFrame& frame) {
  if (leads() && !seat_.answers() && world_.now_us() - etcd_heard_us_ < kLeaseUs)
    world_.context().report("leader-answers", "scheduler " + std::to_string(number_) +
                                                  " leads, etcd hears it, and it sends a node away");
  seat_.OnMessage(conn, frame);
  AfterCall();
}

void SchedulerProcess::OnDisconnect(ConnId conn) {
  seat_.OnDisconnect(conn);
  AfterCall();
}

void SchedulerProcess::AfterCall() {
  if (alive() && world_.etcd() == nullptr && world_.store().dying()) world_.KillScheduler(number_, true);
}

void SchedulerProcess::OnOver(const Status&, bool at_once) {
  if (!alive()) return;  // killed while it waited for its store
  const bool dying = world_.etcd() == nullptr && world_.store().dying();
  if (at_once || dying) return world_.KillScheduler(number_, true);
  world_.OnSchedulerLeft(*this);
}

}  // namespace cairn::sim

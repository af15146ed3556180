#include "scheduler_process.h"

#include <utility>

namespace cairn::sim {

namespace {
constexpr int64_t kSchedulerTickUs = 100'000;
constexpr int64_t kCampaignEveryUs = 500'000;
constexpr int64_t kLeaseSeconds = 5;
constexpr int64_t kKeepLeaseUs = kLeaseSeconds * 1'000'000 / 3;
constexpr int64_t kTryAgainUs = 500'000;
constexpr int64_t kLongWaitUs = 500'000;  // for its store: nobody could be heard meanwhile
}  // namespace

SchedulerProcess::SchedulerProcess(World& world, uint32_t number)
    : world_(world), number_(number), leadership_(world.plan().lost_after_us) {
  const std::string name = number == 0 ? "scheduler" : "scheduler " + std::to_string(number);
  process_ = world.fabric().AddProcess(SchedulerHost(number), name);
  const Actor actor{.role = wire::Role::kScheduler, .index = number};
  port_ = world.fabric().AddPort(process_, name, actor.Tag(), this);
}

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
  if (world_.etcd() == nullptr) return Lead(world_.store());
  kv_ = std::make_unique<SimKv>(world_, *world_.etcd(), process_, world_.random().Next());
  scheduler::EtcdElectionOptions options;
  options.prefix = kEtcdPrefix;
  options.address = wire::ToString(world_.scheduler_endpoints()[number_]);
  options.ttl_s = kLeaseSeconds;
  election_ = std::make_unique<scheduler::EtcdElection>(*kv_, options);
  world_.fabric().Run(process_, world_.now_us() + world_.random().Between(0, kCampaignEveryUs),
                      [this] { Campaign(); });
}

void SchedulerProcess::Resign() {
  world_.context().deeds.Add(Deed::kResigned);
  world_.Log("scheduler " + std::to_string(number_), "resigns: it hears nobody");
  leadership_.Resign(world_.now_us());
  ++reigns_;
  world_.Dispose([dead = std::shared_ptr<scheduler::Scheduler>(std::move(core_))] {});
  election_->Resign();
  // The real candidate is a thread of its own: what it has asked etcd may be answered, or given up, later.
  if (alive() && world_.random().Chance(0.5))
    world_.fabric().Run(process_, world_.now_us() + world_.random().Between(1'000, 1'500'000), [this] {
      if (!leads()) leadership_.OnEtcd(false);
    });
  if (alive()) world_.fabric().Run(process_, world_.now_us() + kCampaignEveryUs, [this] { Campaign(); });
}

void SchedulerProcess::Campaign() {
  leadership_.OnTick(world_.now_us());
  if (leadership_.resigned())
    return world_.fabric().Run(process_, world_.now_us() + kCampaignEveryUs, [this] { Campaign(); });
  const auto standing = election_->Campaign();
  if (!alive()) return;
  if (!standing.ok() || standing->revision == 0) {
    return world_.fabric().Run(process_, world_.now_us() + kCampaignEveryUs, [this] { Campaign(); });
  }
  if (world_.context().durable.term.value > 0) world_.context().deeds.Add(Deed::kNewLeader);
  world_.Log("scheduler " + std::to_string(number_), "leads, revision " + std::to_string(standing->revision));
  scheduler::EtcdStoreOptions options;
  options.prefix = kEtcdPrefix;
  options.leader_revision = standing->revision;
  options.now_us = [this] { return kv_->now_us(); };
  options.pause = [this](int64_t us) { kv_->Pause(us); };
  store_ = std::make_unique<scheduler::EtcdStore>(*kv_, options);
  etcd_heard_us_ = world_.now_us();
  told_silent_ = false;
  leadership_.OnWon();
  Lead(*store_);
  if (alive())
    world_.fabric().Run(process_, world_.now_us() + kKeepLeaseUs,
                        [this, reign = reigns_] { KeepLease(reign); });
}

void SchedulerProcess::KeepLease(uint64_t reign) {
  if (reign != reigns_) return;
  const int64_t asked_us = world_.now_us();
  const auto leads = election_->KeepAlive();
  if (!alive()) return;
  if (leads.ok() && !*leads) return world_.KillScheduler(number_, true);
  if (leads.ok()) etcd_heard_us_ = asked_us;
  // Another one may lead by now: it stops answering.
  const bool silent = world_.now_us() - etcd_heard_us_ >= kLeaseSeconds * 1'000'000;
  if (std::exchange(told_silent_, silent) != silent) leadership_.OnEtcd(!silent);
  const int64_t pause = leads.ok() ? kKeepLeaseUs : kTryAgainUs;
  world_.fabric().Run(process_, world_.now_us() + pause, [this, reign = reigns_] { KeepLease(reign); });
}

// What was sent to it while it waited for its store is handled behind that.
template <class Function>
void SchedulerProcess::Call(Function function) {
  const int64_t start_us = world_.now_us();
  function(start_us);
  if (!alive()) return;
  if (const int64_t waited_us = world_.now_us() - start_us; waited_us >= kLongWaitUs)
    core_->OnWaited(waited_us);
  AfterCall();
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
  core_ = std::move(started).value();
  AfterCall();
  world_.fabric().Run(process_, world_.now_us() + kSchedulerTickUs, [this, reign = reigns_] { Tick(reign); });
}

void SchedulerProcess::Tick(uint64_t reign) {
  if (core_ == nullptr || reign != reigns_) return;
  Call([this](int64_t now_us) { core_->OnTick(now_us); });
  if (alive() && world_.etcd() != nullptr && core_->cut_off()) return Resign();
  world_.fabric().Run(process_, world_.now_us() + kSchedulerTickUs, [this, reign = reigns_] { Tick(reign); });
}

void SchedulerProcess::OnMessage(ConnId conn, wire::InFrame& frame) {
  leadership_.OnFound();
  if (core_ == nullptr || leadership_.away()) {
    if (core_ != nullptr && !told_silent_)
      world_.context().report("leader-answers", "scheduler " + std::to_string(number_) +
                                                    " leads, etcd hears it, and it sends a node away");
    const wire::Refusal refusal{frame.header.request_id, Code::kUnavailable, "this scheduler does not lead"};
    port_->Send(conn, wire::EncodeControl(refusal, world_.pool()));
    return port_->Close(conn);
  }
  Call([&](int64_t now_us) { core_->OnMessage(conn, frame, now_us); });
}

void SchedulerProcess::OnDisconnect(ConnId conn) {
  if (core_ == nullptr) return;
  Call([&](int64_t now_us) { core_->OnDisconnect(conn, now_us); });
}

void SchedulerProcess::AfterCall() {
  if (!alive()) return;  // killed while it waited for its store
  if ((world_.etcd() == nullptr && world_.store().dying()) || !core_->fatal().ok()) {
    world_.KillScheduler(number_, true);
  } else if (core_->finished()) {
    world_.OnSchedulerLeft(*this);
  }
}

}  // namespace cairn::sim

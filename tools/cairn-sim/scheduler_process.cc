#include "scheduler_process.h"

#include <utility>

namespace cairn::sim {

namespace {
constexpr int64_t kTickUs = 100'000;
}

SchedulerProcess::SchedulerProcess(World& world) : world_(world) {
  process_ = world.fabric().AddProcess(kSchedulerHost, "scheduler");
  const Actor actor{.role = wire::Role::kScheduler};
  port_ = world.fabric().AddPort(process_, "scheduler", actor.Tag(), this);
}

void SchedulerProcess::Start() {
  scheduler::SchedulerOptions options;
  options.cluster_seed = world_.plan().seed + 1;
  options.expected_servers = world_.plan().servers;
  options.expected_workers = world_.plan().workers;
  options.slot_count = world_.plan().slots;
  options.endpoint = world_.scheduler_endpoint();
  options.rejoin_grace_us = 8'000'000;
  auto started =
      scheduler::Scheduler::Start(options, world_.store(), *port_, world_.pool(), world_.now_us(),
                                  [this](const std::string& line) { world_.Log("scheduler", line); });
  if (!started.ok()) {
    // Dying inside the append of its first record is no violation; anything else is.
    if (started.status().code() != Code::kIo) {
      world_.context().report("liveness", "the scheduler can't start: " + started.status().ToString());
    }
    world_.KillScheduler(true);
    return;
  }
  core_ = std::move(started).value();
  world_.fabric().Listen(process_, world_.scheduler_endpoint(),
                         [port = port_](const wire::InFrame&) { return port; });
  AfterCall();
  world_.fabric().Run(process_, world_.now_us() + kTickUs, [this] { Tick(); });
}

void SchedulerProcess::Tick() {
  core_->OnTick(world_.now_us());
  AfterCall();
  world_.fabric().Run(process_, world_.now_us() + kTickUs, [this] { Tick(); });
}

void SchedulerProcess::OnMessage(ConnId conn, wire::InFrame& frame) {
  core_->OnMessage(conn, frame, world_.now_us());
  AfterCall();
}

void SchedulerProcess::OnDisconnect(ConnId conn) {
  core_->OnDisconnect(conn, world_.now_us());
  AfterCall();
}

void SchedulerProcess::AfterCall() {
  if (world_.store().dying() || !core_->fatal().ok()) {
    world_.KillScheduler(true);
  } else if (core_->finished()) {
    world_.OnSchedulerLeft();
  }
}

}  // namespace cairn::sim

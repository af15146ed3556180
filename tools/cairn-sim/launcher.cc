#include "launcher.h"

#include <algorithm>
#include <utility>

#include "wire/control.h"

namespace cairn::sim {

namespace {
constexpr int64_t kGiveUpEveryUs = 500'000;
}

Launcher::Launcher(World& world) : world_(world), random_(Mix64(world.plan().seed, 44)) {
  process_ = world.fabric().AddProcess(kLauncherHost, "launcher");
  port_ = world.fabric().AddPort(process_, "launcher", Actor{.role = wire::Role::kTool}.Tag(), this);
  const Plan& plan = world.plan();
  entries_.resize(plan.workers + plan.late_workers);
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const bool chooses = plan.seed % 3 != 0;
    entries_[i].wanted_rank = chooses ? static_cast<int32_t>(i) : -1;
    entries_[i].short_life = plan.early_leave && random_.Chance(0.4);
  }
}

void Launcher::Start() {
  const Plan& plan = world_.plan();
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    StartAfter(i, i < plan.workers ? random_.Between(0, 1'500'000) : random_.Between(1'000'000, 9'000'000));
  }
}

void Launcher::StartAfter(uint32_t number, int64_t delay_us) {
  entries_[number].waiting = true;
  world_.queue().After(delay_us, [this, number] { StartNow(number); });
}

void Launcher::StartNow(uint32_t number) {
  Entry& entry = entries_[number];
  entry.waiting = false;
  if (entry.process) return;
  // Nobody joins a job that is over; a late worker may also come before the job has formed.
  const wire::Phase phase = world_.context().durable.phase;
  if (phase == wire::Phase::kEnded || phase == wire::Phase::kFailed) return;
  entry.process = std::make_unique<WorkerProcess>(world_, number, entry.wanted_rank, entry.short_life);
  entry.process->Start();
}

// Where the scheduler chooses, two may have had the same rank, one after the other: the first was
// declared dead. If both came back for it, they would retire each other for ever.
bool Launcher::WantedByAnother(const Entry& entry, int32_t rank) const {
  return std::ranges::any_of(
      entries_, [&](const Entry& other) { return &other != &entry && other.wanted_rank == rank; });
}

void Launcher::Bury(Entry& entry) {
  WorkerProcess& worker = *entry.process;
  if (worker.registered()) {
    const auto rank = static_cast<int32_t>(worker.core().rank().value);
    entry.wanted_rank = WantedByAnother(entry, rank) ? -1 : rank;
    world_.Tell([&](Checker& c) {
      c.OnClientGone(worker.number(), worker.core(), world_.fabric().incidents(WorkerHost(worker.number())));
    });
  }
  world_.Dispose([dead = std::shared_ptr<WorkerProcess>(std::move(entry.process))] {});
}

void Launcher::End(WorkerProcess& worker, bool silent) {
  world_.fabric().Kill(worker.process(), silent);
  if (!worker.registered()) return;
  world_.Tell([&](Checker& c) { c.OnWorkerDied(worker.core().incarnation()); });
}

void Launcher::OnExit(WorkerProcess& worker, const Status& status) {
  const uint32_t number = worker.number();
  Entry& entry = entries_[number];
  const Actor actor{.role = wire::Role::kWorker, .index = number, .process = worker.process()};
  world_.Tell([&](Checker& c) { c.OnExit(actor, status); });
  End(worker, false);
  if (entry.process.get() != &worker) return;  // a twin has taken its place
  Bury(entry);
  if (status.ok() || status.code() == Code::kJobFailed) return;
  Restart(number);
}

void Launcher::Kill(uint32_t number, bool silent) {
  Entry& entry = entries_[number];
  if (!entry.process) return;
  OnEnded(entry.process->uid());
  End(*entry.process, silent);
  Bury(entry);
  Restart(number);
}

void Launcher::Restart(uint32_t number) {
  Entry& entry = entries_[number];
  // A job that has not formed waits for its workers as long as it takes: they are always sent again.
  const bool forming = world_.context().durable.phase == wire::Phase::kForming;
  if (forming || entry.restarts++ < world_.plan().max_restarts) {
    ++world_.outcome().restarts;
    StartAfter(number, random_.Between(50'000, 2'500'000));
  } else if (world_.plan().give_up) {
    GiveUp(entry.wanted_rank);
  }
}

void Launcher::StartTwin(uint32_t number) {
  Entry& entry = entries_[number];
  if (!entry.process || !entry.process->registered()) return;
  if (WantedByAnother(entry, static_cast<int32_t>(entry.process->core().rank().value))) return;
  // The first one lives on, until it is told that it is retired.
  replaced_.push_back(entry.process->process());
  Bury(entry);
  StartAfter(number, 1);
}

void Launcher::GiveUp(int32_t rank) {
  if (rank < 0) return;  // the scheduler finds out by itself
  given_up_.insert(static_cast<uint32_t>(rank));
  if (!std::exchange(telling_, true)) TellScheduler();
}

void Launcher::OnEnded(uint64_t uid) {
  if (!world_.plan().tells_of_ends) return;
  world_.queue().After(random_.Between(1'000, random_.Chance(0.2) ? 9'000'000 : 300'000), [this, uid] {
    ended_.push_back(uid);
    if (!std::exchange(telling_, true)) TellScheduler();
  });
}

// Repeats it as long as the job runs: there is no answer.
void Launcher::TellScheduler() {
  const wire::Phase phase = world_.context().durable.phase;
  if (phase == wire::Phase::kEnded || phase == wire::Phase::kFailed) return;
  if (connected_) {
    for (uint32_t rank : given_up_)
      port_->Send(conn_, wire::EncodeControl(wire::GiveUp{rank}, world_.pool()));
    for (uint64_t uid : ended_) {
      world_.context().deeds.Add(Deed::kEndTold);
      port_->Send(conn_, wire::EncodeControl(wire::ProcessEnded{uid}, world_.pool()));
    }
  } else {
    if (conn_.value != 0) port_->Close(conn_);
    const auto schedulers = world_.scheduler_endpoints();
    conn_ = port_->Connect(schedulers[random_.Below(schedulers.size())]);
  }
  world_.queue().After(kGiveUpEveryUs, [this] { TellScheduler(); });
}

void Launcher::OnConnected(ConnId conn) { connected_ = conn == conn_; }
void Launcher::OnDisconnect(ConnId conn) {
  if (conn != conn_) return;
  connected_ = false;
  conn_ = {};
}

std::vector<uint32_t> Launcher::Running() const {
  std::vector<uint32_t> running;
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].process) running.push_back(i);
  }
  return running;
}

WorkerProcess* Launcher::Find(uint32_t number) const { return entries_[number].process.get(); }

bool Launcher::Over() const {
  const wire::Phase phase = world_.context().durable.phase;
  const bool job_over = phase == wire::Phase::kEnded || phase == wire::Phase::kFailed;
  for (const Entry& entry : entries_) {
    if (entry.process || (entry.waiting && !job_over)) return false;
  }
  for (int old : replaced_) {
    if (world_.fabric().alive(old)) return false;
  }
  return true;
}

std::string Launcher::WhoIsLeft() const {
  std::string text;
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].process) text += "; " + entries_[i].process->WhatItDoes();
    if (entries_[i].waiting) text += "; worker " + std::to_string(i) + " not started";
  }
  for (int old : replaced_) {
    if (world_.fabric().alive(old)) text += "; replaced process " + std::to_string(old) + " runs on";
  }
  return text;
}

}  // namespace cairn::sim

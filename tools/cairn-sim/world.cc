#include "world.h"

#include <utility>

#include "chaos.h"
#include "launcher.h"
#include "scheduler/durable.h"
#include "scheduler_process.h"
#include "server_process.h"
#include "wire/data.h"
#include "worker_process.h"

namespace cairn::sim {

namespace {
constexpr size_t kViolationsKept = 5;
// After everything is healed: detection, restarts, the grace for ranks that stay away, and slack.
constexpr int64_t kLivenessBoundUs = 120'000'000;
constexpr uint64_t kMaxEvents = 4'000'000;  // more is a livelock
}  // namespace

World::World(const Plan& plan, std::FILE* trace_out)
    : plan_(plan),
      trace_(trace_out),
      pool_(size_t{16} << 20),
      random_(Mix64(plan.seed, 5)),
      fabric_(queue_, Mix64(plan.seed, 6), pool_, trace_, outcome_.faults),
      context_(plan_) {
  outcome_.seed = plan.seed;
  context_.now_us = [this] { return queue_.now_us(); };
  context_.report = [this](const char* checker, const std::string& what) {
    Log("checker", std::string("VIOLATION ") + checker + ": " + what);
    if (outcome_.violations.size() < kViolationsKept) {
      outcome_.violations.push_back({checker, what, queue_.now_us()});
    }
  };
  fabric_.set_tap(this);
  fabric_.set_profile(plan_.network);
  checkers_ = MakeCheckers(context_);
  store_ = std::make_unique<SimStore>(
      SimStore::Hooks{[this] { return AppendFate(); },
                      [this] {
                        if (scheduler_) fabric_.Mute(scheduler_->process());
                      },
                      [this](std::span<const std::byte> record) { OnDurable(record); }});
}

World::~World() = default;

void World::Log(const std::string& who, const std::string& line) {
  if (trace_.printing()) trace_.Print(now_us(), "[" + who + "] " + line);
}

Outcome World::Run() {
  for (uint32_t i = 0; i < plan_.servers; ++i) fabric_.LimitLosses(kSchedulerHost, ServerHost(i));
  StartScheduler();
  for (uint32_t i = 0; i < plan_.servers; ++i) {
    servers_.push_back(std::make_unique<ServerProcess>(*this, i));
    queue_.At(random_.Between(0, 1'000'000), [server = servers_.back().get()] { server->Start(); });
    if (random_.Chance(plan_.slow)) {
      outcome_.faults.Add(Fault::kSlowNode);
      fabric_.SetLag(servers_.back()->process(), random_.Between(5'000, 100'000));
    }
  }
  launcher_ = std::make_unique<Launcher>(*this);
  launcher_->Start();
  chaos_ = std::make_unique<Chaos>(*this);
  chaos_->Start();
  queue_.At(plan_.heal_us, [this] { Heal(); });
  while (!Over() && outcome_.violations.empty()) {
    if (now_us() > plan_.heal_us + kLivenessBoundUs || queue_.ran() > kMaxEvents || !queue_.RunOne()) {
      outcome_.stuck = true;
      outcome_.stuck_why = WhoIsLeft();
      break;
    }
  }
  if (outcome_.clean()) Tell([](Checker& c) { c.AtEnd(); });
  outcome_.trace_hash = trace_.hash();
  outcome_.events = queue_.ran();
  outcome_.deeds = context_.deeds;
  outcome_.virtual_us = now_us();
  outcome_.view_changes = context_.durable.view.value;
  outcome_.failed_jobs = context_.durable.phase == wire::Phase::kFailed;
  return outcome_;
}

void World::Heal() {
  healed_ = true;
  FaultProfile calm;
  calm.delay_us = plan_.network.delay_us;
  calm.jitter_us = plan_.network.jitter_us;
  fabric_.set_profile(calm);
  fabric_.HealAll();
  Log("world", "healed");
}

bool World::Over() const {
  for (const auto& server : servers_) {
    if (!server->gone()) return false;
  }
  return scheduler_left_ && launcher_->Over();
}

std::string World::WhoIsLeft() const {
  std::string text = "phase " + std::to_string(static_cast<int>(context_.durable.phase)) + " view " +
                     std::to_string(context_.durable.view.value) + " pending " +
                     std::to_string(context_.durable.pending_view.value);
  if (!scheduler_left_) text += "; scheduler";
  for (const auto& server : servers_) {
    if (!server->gone()) text += "; server " + std::to_string(server->index());
  }
  return text + launcher_->WhoIsLeft();
}

void World::StartScheduler() {
  ++scheduler_starts_;
  scheduler_ = std::make_unique<SchedulerProcess>(*this);
  scheduler_->Start();
}

void World::KillScheduler(bool restart) {
  if (!scheduler_) return;
  fabric_.Kill(scheduler_->process(), random_.Chance(0.2));
  Dispose([dead = std::shared_ptr<SchedulerProcess>(std::move(scheduler_))] {});
  if (restart) queue_.After(random_.Between(100'000, 2'500'000), [this] { StartScheduler(); });
}

void World::OnSchedulerLeft() {
  const Actor actor{.role = wire::Role::kScheduler, .process = scheduler_->process()};
  Tell([&](Checker& c) { c.OnExit(actor, Status::Ok()); });
  scheduler_left_ = true;
  KillScheduler(false);
}

void World::KillServer(uint32_t index) {
  ServerProcess& server = *servers_[index];
  fabric_.Kill(server.process(), random_.Chance(0.3));
  server.set_gone();
}

void World::RestartServer(uint32_t index) {
  const wire::Phase phase = context_.durable.phase;
  if (scheduler_left_ || phase != wire::Phase::kRunning) return;
  Dispose([dead = std::shared_ptr<ServerProcess>(std::move(servers_[index]))] {});
  servers_[index] = std::make_unique<ServerProcess>(*this, index, true);
  servers_[index]->Start();
}

void World::OnServerLeft(ServerProcess& server, const Status& result) {
  const Actor actor{.role = wire::Role::kServer, .index = server.index(), .process = server.process()};
  Tell([&](Checker& c) { c.OnExit(actor, result); });
  fabric_.Kill(server.process(), false);
  server.set_gone();
}

SimStore::Fate World::AppendFate() {
  if (healed_ || !random_.Chance(plan_.store_crashes)) return SimStore::Fate::kFine;
  outcome_.faults.Add(Fault::kStoreCrash);
  switch (random_.Below(3)) {
    case 0: return SimStore::Fate::kLostThenCrash;
    case 1: outcome_.faults.Add(Fault::kTornTail); return SimStore::Fate::kTornThenCrash;
    default: return SimStore::Fate::kDurableThenCrash;
  }
}

void World::OnDurable(std::span<const std::byte> record) {
  auto decoded = scheduler::DecodeRecord(record);
  if (!decoded.ok())
    return context_.report("views-durable", "a record of the log: " + decoded.status().ToString());
  context_.durable = std::move(decoded->state);
  const wire::ClusterState& state = context_.durable;
  for (const auto& table : state.tables) context_.tables.try_emplace(table.id.value, table);
  for (const auto& worker : state.workers) context_.ranks[worker.incarnation.value] = worker.rank.value;
  if (trace_.printing()) {
    std::string workers;
    for (const auto& w : state.workers) {
      workers += " " + std::to_string(w.rank.value) + "#" + std::to_string(w.incarnation.value) + "@" +
                 std::to_string(w.join_view.value);
    }
    Log("log", "version " + std::to_string(state.version.value) + " term " +
                   std::to_string(state.term.value) + " phase " +
                   std::to_string(static_cast<int>(state.phase)) + " view " +
                   std::to_string(state.view.value) + " pending " + std::to_string(state.pending_view.value) +
                   " workers" + workers);
  }
  Tell([&](Checker& c) { c.OnDurable(state); });
}

void World::OnSend(const Port& from, const Port* to, const wire::FrameHeader& header,
                   std::span<const std::byte> body) {
  const Actor sender = Actor::FromTag(from.tag(), from.process());
  const Actor receiver = to == nullptr ? Actor{} : Actor::FromTag(to->tag(), to->process());
  const Actor* receiver_or_null = to == nullptr ? nullptr : &receiver;
  if (header.type == wire::FrameType::kControl) {
    auto message = wire::DecodeControl(header, body);
    if (!message.ok()) return context_.report("wire", from.name() + " sends " + message.status().ToString());
    if (trace_.printing()) Log(from.name(), wire::Name(*message));
    if (const auto* registered = std::get_if<wire::Registered>(&*message)) {
      context_.barrier_bases[registered->incarnation.value] = registered->barrier_base;
    }
    Tell([&](Checker& c) { c.OnControlSent(sender, receiver_or_null, *message); });
    return;
  }
  const bool push = header.type == wire::FrameType::kPush || header.type == wire::FrameType::kContribute ||
                    header.type == wire::FrameType::kDone;
  if (push) {
    auto view = wire::DecodePush(header, body);
    if (!view.ok()) return context_.report("wire", from.name() + " sends " + view.status().ToString());
    context_.facts.OnSent(header, *view);
  }
  Tell([&](Checker& c) { c.OnDataSent(sender, receiver_or_null, header, body); });
}

}  // namespace cairn::sim

#include "world.h"

#include <algorithm>
#include <utility>

#include "chaos.h"
#include "last_word.h"
#include "launcher.h"
#include "memory_faults.h"
#include "scheduler/rules/durable.h"
#include "scheduler_process.h"
#include "server_keeper.h"
#include "sim_kv.h"
#include "wire/data.h"
#include "worker_process.h"

namespace cairn::sim {

namespace {
constexpr size_t kViolationsKept = 5;
// After everything is healed: detection, restarts, the grace for ranks that stay away, and slack.
constexpr int64_t kLivenessBoundUs = 120'000'000;
constexpr uint64_t kMaxEvents = 6'000'000;  // more is a livelock
constexpr int64_t kMomentUs = 400'000;
constexpr int64_t kQuietUs = 3'000'000;  // so long without a change of owners: nothing is under way
// Of two standbys each waits for a lease to end; one that had resigned waits for `lost_after` first.
constexpr int64_t kStandbysLeaveUs = 25'000'000;
constexpr int64_t kSettleBoundUs = 60'000'000;  // copies, moves and what must be detected first
// "; slot 3: 1#5e2 +0#4 ?2#9 >0": primary, epoch, backups in sync and not, heir. Only those that changed.
std::string OwnersWords(const wire::ClusterState& before, const wire::ClusterState& state) {
  std::string text;
  for (const wire::ServerInfo& server : state.servers) {
    text += " s" + std::to_string(server.index) + "#" + std::to_string(server.incarnation.value) +
            (server.leaving ? "(leaving)" : "");
  }
  for (size_t s = 0; s < state.slots.size(); ++s) {
    const wire::SlotOwner& owner = state.slots[s];
    if (s < before.slots.size() && before.slots[s] == owner) continue;
    text += "; slot " + std::to_string(s) + ": " + std::to_string(owner.server) + "." +
            std::to_string(owner.thread) + "e" + std::to_string(owner.epoch);
    for (const wire::Backup& backup : owner.backups) {
      text += (backup.in_sync ? " +" : " ?") + std::to_string(backup.server) + "." +
              std::to_string(backup.thread);
    }
    if (owner.heir != wire::kNoServer) text += " >" + std::to_string(owner.heir);
  }
  return text;
}
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
    if (context_.replaying) return;
    Log("checker", std::string("VIOLATION ") + checker + ": " + what);
    if (outcome_.violations.size() < kViolationsKept) {
      outcome_.violations.push_back({checker, what, queue_.now_us()});
    }
  };
  fabric_.set_tap(this);
  fabric_.set_profile(plan_.network);
  checkers_ = MakeCheckers(context_);
  schedulers_.resize(plan_.schedulers);
  if (plan_.schedulers > 1) {
    etcd_ = std::make_unique<SimEtcd>(
        *this, scheduler::RecordKey(kEtcdPrefix),
        [this](const std::string& value) { OnDurable(std::as_bytes(std::span(value))); });
    return;
  }
  store_ = MakeStore();
}

std::unique_ptr<SimStore> World::MakeStore() {
  using Left = scheduler::MemoryDisk::Left;
  SimStore::Hooks hooks;
  hooks.fate = [this](bool sync) { return DiskFate(sync); };
  hooks.on_left = [this](Left left) {
    if (left == Left::kPrefix) outcome_.faults.Add(Fault::kTornTail);
    if (left == Left::kSome) outcome_.faults.Add(Fault::kTornOrder);
  };
  hooks.dying = [this] {
    if (schedulers_[0]) fabric_.Mute(schedulers_[0]->process());
  };
  hooks.on_durable = [this](std::span<const std::byte> record) { OnDurable(record); };
  hooks.on_unreadable = [this](const std::string& why) {
    context_.report("views-durable", "the log can't be read: " + why);
  };
  return std::make_unique<SimStore>(Mix64(plan_.seed, 7), std::move(hooks));
}

World::~World() = default;

void World::Log(const std::string& who, const std::string& line) {
  if (trace_.printing()) trace_.Print(now_us(), "[" + who + "] " + line);
}

std::vector<wire::Endpoint> World::scheduler_endpoints() const {
  std::vector<wire::Endpoint> endpoints;
  for (uint32_t i = 0; i < plan_.schedulers; ++i)
    endpoints.push_back({"scheduler" + std::to_string(i), static_cast<uint16_t>(7000 + i)});
  return endpoints;
}

Outcome World::Run() {
  bounds::reached = {};
  keeper_ = std::make_unique<ServerKeeper>(*this);
  memory_faults_ = std::make_unique<MemoryFaults>(*this);
  last_word_ = std::make_unique<LastWord>(*this);
  for (uint32_t i = 0; i < plan_.schedulers; ++i) StartScheduler(i);
  keeper_->Start();
  launcher_ = std::make_unique<Launcher>(*this);
  launcher_->Start();
  chaos_ = std::make_unique<Chaos>(*this);
  chaos_->Start();
  queue_.At(plan_.heal_us, [this] { Heal(); });
  queue_.After(kMomentUs, [this] { OnMoment(); });
  while (!Over() && outcome_.violations.empty()) {
    const bool late = now_us() > plan_.heal_us + kLivenessBoundUs * plan_.patience;
    if (late || queue_.ran() > kMaxEvents * static_cast<uint64_t>(plan_.patience) || !queue_.RunOne()) {
      outcome_.stuck = true;
      outcome_.stuck_why = WhoIsLeft();
      break;
    }
  }
  if (outcome_.clean()) Tell([](Checker& c) { c.AtEnd(); });
  outcome_.trace_hash = trace_.hash();
  outcome_.events = queue_.ran();
  if (plan_.servers + plan_.workers > 16 && context_.durable.view.value > 0)
    context_.deeds.Add(Deed::kManyNodes);
  outcome_.deeds = context_.deeds;
  outcome_.deeds.bounds = bounds::reached;
  outcome_.virtual_us = now_us();
  outcome_.view_changes = context_.durable.view.value;
  outcome_.failed_jobs = context_.durable.phase == wire::Phase::kFailed;
  outcome_.settled_jobs = settled_;
  return outcome_;
}

void World::OnMoment() {
  memory_faults_->OnMoment();
  Tell([](Checker& c) { c.OnMoment(); });
  const bool quiet = now_us() - owners_changed_us_ >= kQuietUs;
  if (healed_ && !settled_ && quiet && Misplaced().empty()) {
    settled_ = true;
    Log("world", "every slot has all of its owners");
    Tell([](Checker& c) { c.OnSettled(); });
  }
  if (!MayEnd() && now_us() > plan_.heal_us + kSettleBoundUs)
    context_.report("placement", "long after the last fault not every slot has its owners: " + Misplaced());
  // One that has been replaced can't note that everybody knows: the next one waits for the nodes in vain.
  const int64_t silence_us = (replaced_left_ ? 2 : 1) * plan_.lost_after_us;
  const int64_t since_left_us = now_us() - std::max(left_us_, plan_.heal_us);
  if (scheduler_left_ && !SchedulersGone() && since_left_us > silence_us + kStandbysLeaveUs)
    context_.report("liveness", "long after everybody was told of the end, a standby has not left");
  if (!Over()) queue_.After(kMomentUs, [this] { OnMoment(); });
}

// Empty if nobody is leaving, every slot has as many owners as it should, all of them in sync, and
// each server has a share of the owners. (By bytes they are even; slots differ in size.)
std::string World::Misplaced() const {
  const wire::ClusterState& state = context_.durable;
  if (state.phase != wire::Phase::kRunning) return "the job does not run";
  if (std::string damage = memory_faults_->NotMended(); !damage.empty()) return damage;
  for (const wire::ServerInfo& server : state.servers) {
    if (server.leaving) return "server " + std::to_string(server.index) + " is leaving";
    if (keeper_->Find(server.index) == nullptr) return "server " + std::to_string(server.index) + " is dead";
  }
  const size_t wanted = std::min<size_t>(state.replicas, state.servers.size());
  for (size_t s = 0; s < state.slots.size(); ++s) {
    const wire::SlotOwner& owner = state.slots[s];
    const bool in_sync = std::ranges::all_of(owner.backups, [](const wire::Backup& b) { return b.in_sync; });
    if (owner.heir != wire::kNoServer || owner.backups.size() + 1 != wanted || !in_sync) {
      return "slot " + std::to_string(s) + " has " + std::to_string(owner.backups.size() + 1) +
             " owners of " + std::to_string(wanted) + (in_sync ? "" : ", not all in sync") +
             (owner.heir != wire::kNoServer ? ", is being handed over" : "");
    }
  }
  const size_t share = state.slots.size() * wanted / state.servers.size();
  for (const wire::ServerInfo& server : state.servers) {
    size_t owned = 0;
    for (const wire::SlotOwner& owner : state.slots)
      owned +=
          owner.server == server.index || owner.FindBackup(static_cast<uint16_t>(server.index)) != nullptr;
    if (owned < share / 8)
      return "server " + std::to_string(server.index) + " owns " + std::to_string(owned) + " of " +
             std::to_string(state.slots.size()) + " slots";
  }
  return {};
}

bool World::AllIsWell() const { return !keeper_->hurting() && !keeper_->awaiting() && Misplaced().empty(); }

void World::RunAround(int process, int64_t us) {
  const int64_t until_us = now_us() + us;
  queue_.At(until_us, [] {});  // time moves by what happens
  fabric_.SetBusy(process, true);
  while (now_us() < until_us && fabric_.alive(process) && outcome_.violations.empty() && queue_.RunOne()) {
  }
  fabric_.SetBusy(process, false);
}

void World::Heal() {
  healed_ = true;
  FaultProfile calm;
  calm.delay_us = plan_.network.delay_us;
  calm.jitter_us = plan_.network.jitter_us;
  fabric_.set_profile(calm);
  fabric_.HealAll();
  keeper_->AtHeal();
  Log("world", "healed");
}

bool World::SchedulersGone() const {
  return scheduler_left_ && std::ranges::all_of(schedulers_, [](const auto& one) { return one == nullptr; });
}

bool World::Over() const { return SchedulersGone() && keeper_->Over() && launcher_->Over(); }

std::string World::WhoIsLeft() const {
  std::string text = "phase " + std::to_string(static_cast<int>(context_.durable.phase)) + " view " +
                     std::to_string(context_.durable.view.value) + " pending " +
                     std::to_string(context_.durable.pending_view.value);
  if (!scheduler_left_) text += "; scheduler";
  if (!MayEnd()) text += "; slots are not in their places";
  return text + keeper_->WhoIsLeft() + launcher_->WhoIsLeft();
}

void World::StartScheduler(uint32_t number) {
  if (scheduler_left_) return;
  schedulers_[number] = std::make_unique<SchedulerProcess>(*this, number);
  schedulers_[number]->Start();
}

void World::KillScheduler(uint32_t number, bool restart) {
  if (!schedulers_[number]) return;
  fabric_.Kill(schedulers_[number]->process(), random_.Chance(0.2));
  Dispose([dead = std::shared_ptr<SchedulerProcess>(std::move(schedulers_[number]))] {});
  if (store_) store_->MayFailPower();
  if (restart) queue_.After(random_.Between(100'000, 2'500'000), [this, number] { StartScheduler(number); });
}

void World::KillScheduler(uint32_t number, int64_t restart_after_us) {
  KillScheduler(number, false);
  queue_.After(restart_after_us, [this, number] { StartScheduler(number); });
}

// Its standbys lead one after the other, and find that everybody has been told.
void World::OnSchedulerLeft(SchedulerProcess& scheduler) {
  const Actor actor{
      .role = wire::Role::kScheduler, .index = scheduler.number(), .process = scheduler.process()};
  Tell([&](Checker& c) { c.OnExit(actor, Status::Ok()); });
  if (!scheduler_left_) left_us_ = now_us();
  replaced_left_ |= std::ranges::any_of(schedulers_, [&](const auto& one) {
    return one != nullptr && one.get() != &scheduler && one->leads();
  });
  scheduler_left_ = true;
  KillScheduler(scheduler.number(), false);
}

scheduler::MemoryDisk::Fate World::DiskFate(bool sync) {
  using Fate = scheduler::MemoryDisk::Fate;
  if (healed_) return Fate::kFine;
  if (random_.Chance(sync ? 2 * plan_.store_crashes : plan_.store_crashes)) {
    outcome_.faults.Add(Fault::kStoreCrash);
    return Fate::kPowerFails;
  }
  if (!sync || !random_.Chance(plan_.sync_failures)) return Fate::kFine;
  outcome_.faults.Add(Fault::kSyncFails);
  return Fate::kSyncFails;
}

void World::OnDurable(std::span<const std::byte> record) {
  auto decoded = scheduler::DecodeRecord(record);
  if (!decoded.ok())
    return context_.report("views-durable", "a record of the log: " + decoded.status().ToString());
  const wire::ClusterState before = std::exchange(context_.durable, std::move(decoded->state));
  const wire::ClusterState& state = context_.durable;
  if (state.slots != before.slots || state.servers != before.servers) owners_changed_us_ = now_us();
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
                   " workers" + workers + OwnersWords(before, state));
  }
  memory_faults_->OnDurable(state);
  told_from_[state.version.value] = state;
  if (told_from_.size() > 1024) told_from_.erase(told_from_.begin());
  Tell([&](Checker& c) { c.OnDurable(state); });
  last_word_->OnRecord();
}

void World::OnCoded(wire::Coding coding) {
  const bool half = coding == wire::Coding::kFloat16 || coding == wire::Coding::kBfloat16;
  context_.deeds.Add(half                               ? Deed::kCodedHalf
                     : coding == wire::Coding::kNonZero ? Deed::kCodedNonZero
                                                        : Deed::kCodedLz4);
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
    // A difference says what the whole state would say: checkers see that.
    if (const auto* delta = std::get_if<wire::StateDelta>(&*message)) {
      auto base = told_from_.find(delta->base.value);
      if (base == told_from_.end())
        return context_.report("wire", from.name() + " tells a difference to nothing");
      auto state = wire::Apply(base->second, *delta);
      if (!state.ok()) return context_.report("wire", from.name() + ": " + state.status().ToString());
      *message = wire::StateMessage{std::move(*state)};
      context_.deeds.Add(Deed::kDifferenceTold);
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

#include "server_process.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "memory_faults.h"
#include "server_keeper.h"
#include "wire/replica.h"

namespace cairn::sim {

namespace {
constexpr int64_t kServerTickUs = 100'000;
}  // namespace

// One shard, its port, and the observer through which the checkers see it.
class ServerProcess::ShardThread final : public PortHandler, public server::ShardObserver {
 public:
  ShardThread(ServerProcess& owner, uint32_t thread) : owner_(owner), world_(owner.world_) {
    name_.thread = thread;
    const Actor actor{
        .role = wire::Role::kServer, .index = owner.options_.number, .thread = static_cast<int32_t>(thread)};
    const std::string name =
        "server " + std::to_string(owner.options_.number) + " thread " + std::to_string(thread);
    port_ = world_.fabric().AddPort(owner.process_, name, actor.Tag(), this);
    const Plan& plan = world_.plan();
    server::ShardOptions options;
    options.thread = thread;
    options.name = name;
    options.still_waiting_us = plan.still_waiting_us;
    options.early_contribution_budget = plan.early_budget;
    options.bounds = plan.shard_bounds;
    options.resend_after_us = plan.replica_resend_us;
    options.slow_after_us = plan.slow_after_us;
    options.hash_every_us = plan.hash_every_us;
    options.copy_chunk_bytes = size_t{64} << (2 * (plan.seed % 5));
    options.most_unconfirmed_bytes = plan.most_unconfirmed_bytes;
    options.log = [this, name](const std::string& line) { world_.Log(name, line); };
    options.refusals_kept = plan.max_unacked_frames;
    early_budget_ = options.early_contribution_budget;
    shard_ = server::Shard::Make(options, *port_, world_.pool(), this);
    world_.fabric().Run(owner.process_, world_.now_us() + kServerTickUs, [this] { Tick(); });
  }

  Port* port() { return port_; }
  int64_t* last_post_us() { return &last_post_us_; }
  const ShardName& name() const { return name_; }
  const server::Shard& shard() const { return *shard_; }

  void Registered(uint32_t index, Incarnation incarnation) {
    name_.server = index;
    name_.incarnation = incarnation.value;
    world_.context().shards[name_] = shard_.get();
    world_.context().shard_names[{owner_.process_, static_cast<int32_t>(name_.thread)}] = name_;
    NoteHeld();
    NoteLed();
    shard_->OnRegistered(index, incarnation);
  }
  void State(std::shared_ptr<const wire::ClusterState> state) {
    if (state->version > shard_->version()) {
      world_.context().states[state->version.value] = state;
      if (name_.incarnation != 0) world_.context().shard_states[name_] = state;
      state_ = state;
    }
    NoteHeld();
    NoteLed();
    world_.memory_faults().Look(name_, *shard_);
    shard_->OnState(std::move(state), world_.now_us());
    world_.memory_faults().Look(name_, *shard_);
    Look();
    (void)shard_->TakeNewsFlag();
    Report();
  }

  void OnConnected(ConnId conn) override {
    shard_->OnConnected(conn, world_.now_us());
    Look();
  }
  void OnMessage(ConnId conn, wire::InFrame& frame) override {
    std::set<uint32_t> replicated;
    if (frame.header.type == wire::FrameType::kReplicate) {
      wire::OpReader reader(frame.body());
      for (wire::OpView op; reader.Next(&op);) replicated.insert(op.header.slot);
      world_.memory_faults().MayStrike(name_, *shard_, frame);
    }
    world_.memory_faults().Look(name_, *shard_);
    shard_->OnMessage(conn, frame, world_.now_us());
    world_.memory_faults().Look(name_, *shard_);
    for (uint32_t slot : replicated) world_.Tell([&](Checker& c) { c.OnReplicated(name_, SlotId(slot)); });
    world_.Tell([&](Checker& c) { c.OnEarlyBytes(name_, shard_->early_bytes(), early_budget_); });
    Look();
    if (timer_.AfterMessage(shard_->TakeNewsFlag(), world_.now_us())) Report();
  }
  void OnDisconnect(ConnId conn) override {
    shard_->OnDisconnect(conn, world_.now_us());
    Look();
  }
  uint64_t MostBodyBytes(const wire::FrameHeader& header) const override {
    return shard_->MostBodyBytes(header);
  }
  uint64_t MostAnswerBytes(ConnId, const wire::FrameHeader& header) const override {
    return shard_->MostAnswerBytes(header);
  }

  void OnPush(SlotId slot, Incarnation incarnation, Seq seq, TableId table, server::Outcome outcome,
              Code code, std::span<const RowKey> keys, std::span<const std::byte> values, const Hyper& hyper,
              Position position) override {
    if (outcome != server::Outcome::kApplied && outcome != server::Outcome::kRefused) {
      const PushEvent event{name_, slot, incarnation, seq,   table,   outcome,
                            code,  keys, values,      hyper, position};
      return world_.TellUndecided(event, position.epoch());
    }
    Op op;
    op.shard = name_;
    op.slot = slot;
    op.table = table;
    op.position = position;
    op.incarnation = incarnation;
    op.seq = seq;
    op.outcome = outcome;
    op.code = code;
    op.keys.assign(keys.begin(), keys.end());
    op.values.assign(values.begin(), values.end());
    op.hyper = hyper;
    world_.TellOperation(std::move(op));
  }
  void OnStaged(SlotId slot, Incarnation incarnation, TableId table, Round round, double weight, bool refused,
                std::span<const RowKey> keys, std::span<const std::byte> values) override {
    world_.TellStaged(world_.context().EpochLed(name_, slot), {name_,
                                                               slot,
                                                               incarnation,
                                                               table,
                                                               round,
                                                               weight,
                                                               refused,
                                                               {keys.begin(), keys.end()},
                                                               {values.begin(), values.end()}});
  }
  void OnSummedUp(TableId table, SlotId slot, Round round, double divisor,
                  const std::vector<server::Contributor>& contributors, Position position) override {
    Op op;
    op.kind = Op::Kind::kSumUp;
    op.shard = name_;
    op.slot = slot;
    op.table = table;
    op.position = position;
    op.round = round;
    op.divisor = divisor;
    op.contributors = contributors;
    world_.TellOperation(std::move(op));
  }
  void OnClosed(const server::CloseRecord& record) override {
    Op op;
    op.kind = Op::Kind::kClose;
    op.shard = name_;
    op.slot = record.slot;
    op.table = record.table;
    op.position = record.position;
    op.round = record.round;
    op.divisor = record.divisor;
    op.contributors = record.contributors;
    op.record = record;
    world_.TellOperation(std::move(op));
  }
  void OnRetired(Incarnation incarnation) override {
    world_.Tell([&](Checker& c) { c.OnRetired(name_, incarnation); });
  }
  void OnPromoted(SlotId slot, Position base) override {
    // Its own epoch is new: what it goes on from is what it had before it heard of it.
    auto held = held_.find(slot.value);
    const uint64_t before = held == held_.end() ? 0 : held->second.epoch();
    world_.TellPromoted(name_, slot, base.epoch(), Position::Of(before, base.index()), false);
  }

 private:
  void NoteHeld() {
    held_.clear();
    if (!state_) return;
    for (uint32_t s = 0; s < state_->slots.size(); ++s) {
      const Position held = world_.context().Received(name_, SlotId(s));
      if (held.index() != 0) held_[s] = held;
    }
    if (name_.incarnation != 0) world_.context().shard_states[name_] = state_;
  }
  // A slot's first primary is not promoted, nor is one that has missed that it was none for a while:
  // they begin, or go on, with the state that they are about to be given.
  void NoteLed() {
    if (!state_ || name_.incarnation == 0) return;
    const wire::ServerInfo* self = state_->FindServer(name_.server);
    if (self == nullptr || self->incarnation.value != name_.incarnation) return;
    for (uint32_t s = 0; s < state_->slots.size(); ++s) {
      const wire::SlotOwner& owner = state_->slots[s];
      if (owner.server != name_.server || owner.thread != name_.thread) continue;
      if (shard_->RoleOf(SlotId(s)) == server::Shard::SlotRole::kBackup) continue;
      if (world_.context().EpochLed(name_, SlotId(s)) < owner.epoch)
        world_.TellPromoted(name_, SlotId(s), owner.epoch, held_.contains(s) ? held_[s] : Position{}, true);
    }
  }
  void Tick() {
    shard_->OnTick(world_.now_us());
    Look();
    if (timer_.OnTick(shard_->TakeNewsFlag(), world_.now_us())) Report();
    world_.fabric().Run(owner_.process_, world_.now_us() + kServerTickUs, [this] { Tick(); });
  }
  void Look() {
    const auto high_water = shard_->high_water();
    world_.Tell([&](Checker& c) { c.OnHighWater(name_, high_water); });
  }
  void Report() {
    server::ShardReport report = server::ReportOf(*shard_);
    timer_.Reported(report, world_.now_us());
    if (report.passed_state != nullptr && passed_state_ == nullptr)
      world_.context().deeds.Add(Deed::kStatePassed);
    passed_state_ = report.passed_state;
    owner_.Post(&owner_.last_report_us_,
                [this, told = std::move(report)] { owner_.OnReport(name_.thread, told); });
  }

  ServerProcess& owner_;
  World& world_;
  ShardName name_;
  Port* port_ = nullptr;
  uint64_t early_budget_ = 0;
  std::unique_ptr<server::Shard> shard_;
  std::shared_ptr<const wire::ClusterState> state_;  // the newest that it was given
  std::map<uint32_t, Position> held_;                // by slot, before the newest state
  server::ReportTimer timer_;
  std::shared_ptr<const wire::ClusterState> passed_state_;  // in the last report
  int64_t last_post_us_ = 0;
};

ServerProcess::ServerProcess(World& world, const Options& options) : world_(world), options_(options) {
  const std::string name = "server " + std::to_string(options.number);
  process_ = world.fabric().AddProcess(ServerHost(options.machine), name);
  port_ = world.fabric().AddPort(process_, name,
                                 Actor{.role = wire::Role::kServer, .index = options.number}.Tag(), this);
}

ServerProcess::~ServerProcess() = default;

void ServerProcess::set_gone() {
  gone_ = true;
  for (auto& thread : threads_)
    if (thread->name().incarnation != 0) world_.context().dead.insert(thread->name());
}

void ServerProcess::Start() {
  reports_.resize(options_.threads);
  for (uint32_t t = 0; t < options_.threads; ++t) threads_.push_back(std::make_unique<ShardThread>(*this, t));
  server::ServerControlOptions options;
  const auto schedulers = world_.scheduler_endpoints();
  options.scheduler = schedulers[0];
  options.standbys.assign(schedulers.begin() + 1, schedulers.end());
  options.endpoint = world_.server_endpoint(options_.machine);
  options.threads = options_.threads;
  options.wanted_rank = options_.wanted_rank;
  options.uid = uid_ = world_.NewUid();
  // A server that has missed the end of the job leaves by itself; shorter here than by default.
  options.register_deadline_us = 60'000'000;
  options.orphan_after_us = 60'000'000;
  server::ServerControl::Events events;
  events.on_registered = [this](uint32_t index, Incarnation incarnation) {
    incarnation_ = incarnation.value;
    for (auto& thread : threads_) {
      Post(thread->last_post_us(),
           [t = thread.get(), index, incarnation] { t->Registered(index, incarnation); });
    }
  };
  events.on_state = [this](std::shared_ptr<const wire::ClusterState> state) {
    const Actor actor{.role = wire::Role::kServer, .index = options_.number, .process = process_};
    world_.Tell([&](Checker& c) { c.OnState(actor, *state); });
    for (auto& thread : threads_)
      Post(thread->last_post_us(), [t = thread.get(), state] { t->State(state); });
  };
  control_ = server::ServerControl::Make(
      options, *port_, world_.pool(), std::move(events),
      [this](const std::string& line) { world_.Log("server " + std::to_string(options_.number), line); },
      world_.now_us());
  Listen();
  world_.fabric().Run(process_, world_.now_us() + kServerTickUs, [this] { Tick(); });
}

// The first frame of a connection says which thread it is for, as in the real node.
void ServerProcess::Listen() {
  world_.fabric().Listen(process_, world_.server_endpoint(options_.machine),
                         [this](const wire::InFrame& first) -> Port* {
                           auto message = wire::DecodeControl(first.header, first.body());
                           if (!message.ok()) return nullptr;
                           uint32_t thread = 0;
                           if (const auto* hello = std::get_if<wire::Hello>(&*message))
                             thread = hello->thread;
                           if (const auto* hello = std::get_if<wire::ReplicaHello>(&*message))
                             thread = hello->to_thread;
                           return thread < threads_.size() ? threads_[thread]->port() : nullptr;
                         },
                         {.max_first_bytes = world_.plan().max_first_bytes, .accepts = server::IsHelloReply});
}

void ServerProcess::Drain() {
  draining_ = true;
  control_->Drain(world_.now_us());
  AfterControl();
}

bool ServerProcess::CallsSomebodySlow() const {
  return std::ranges::any_of(threads_, [](const auto& thread) {
    const auto news = thread->shard().news();
    return std::ranges::any_of(news, [](const wire::SlotNews& n) {
      return n.kind == wire::SlotNews::kSlow || n.kind == wire::SlotNews::kDiverged;
    });
  });
}

void ServerProcess::Post(int64_t* last_us, std::function<void()> action) {
  *last_us = std::max(*last_us + 1, world_.now_us() + world_.random().Between(1, 200));
  world_.fabric().Run(process_, *last_us, std::move(action));
}

void ServerProcess::OnReport(uint32_t thread, const server::ShardReport& report) {
  reports_[thread] = report;
  control_->OnReports(reports_, world_.now_us());
  AfterControl();
}

void ServerProcess::OnConnected(ConnId conn) {
  control_->OnConnected(conn, world_.now_us());
  AfterControl();
}
void ServerProcess::OnMessage(ConnId conn, wire::InFrame& frame) {
  control_->OnMessage(conn, frame, world_.now_us());
  AfterControl();
}
void ServerProcess::OnDisconnect(ConnId conn) {
  control_->OnDisconnect(conn, world_.now_us());
  AfterControl();
}
void ServerProcess::Tick() {
  control_->OnTick(world_.now_us());
  AfterControl();
  world_.fabric().Run(process_, world_.now_us() + kServerTickUs, [this] { Tick(); });
}

void ServerProcess::AfterControl() {
  if (const Term term = control_->term(); term != std::exchange(term_, term)) {
    const Actor actor{.role = wire::Role::kServer, .index = options_.number, .process = process_};
    world_.Tell([&](Checker& c) { c.OnTerm(actor, term); });
  }
  if (!gone_ && control_->finished()) world_.keeper().OnLeft(*this, control_->result());
}

}  // namespace cairn::sim

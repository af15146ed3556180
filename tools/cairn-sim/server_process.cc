#include "server_process.h"

#include <algorithm>
#include <utility>

namespace cairn::sim {

namespace {
constexpr int64_t kTickUs = 100'000;
}

// One shard, its port, and the observer through which the checkers see it.
class ServerProcess::ShardThread final : public PortHandler, public server::ShardObserver {
 public:
  ShardThread(ServerProcess& owner, uint32_t thread)
      : owner_(owner), world_(owner.world_), name_{owner.index_, thread} {
    const Actor actor{
        .role = wire::Role::kServer, .index = owner.index_, .thread = static_cast<int32_t>(thread)};
    const std::string name = ToString(name_);
    port_ = world_.fabric().AddPort(owner.process_, name, actor.Tag(), this);
    server::ShardOptions options;
    options.thread = thread;
    options.name = name;
    options.still_waiting_us = world_.plan().still_waiting_us;
    if (world_.plan().seed % 5 == 0) options.early_contribution_budget = 4096;
    early_budget_ = options.early_contribution_budget;
    shard_ = server::Shard::Make(options, *port_, world_.pool(), this);
    if (!owner.replacement_) world_.context().shards[name_] = shard_.get();
    world_.fabric().Run(owner.process_, world_.now_us() + kTickUs, [this] { Tick(); });
  }

  Port* port() { return port_; }
  int64_t* last_post_us() { return &last_post_us_; }
  const ShardName& name() const { return name_; }

  void Registered(uint32_t index, Incarnation incarnation) { shard_->OnRegistered(index, incarnation); }
  void State(std::shared_ptr<const wire::ClusterState> state) {
    if (state->version > shard_->version()) {
      world_.context().shard_states[name_] = state;
      world_.context().states[state->version.value] = state;
    }
    shard_->OnState(std::move(state), world_.now_us());
    Report();
  }

  void OnConnected(ConnId) override {}
  void OnMessage(ConnId conn, wire::InFrame& frame) override {
    shard_->OnMessage(conn, frame, world_.now_us());
    world_.Tell([&](Checker& c) { c.OnEarlyBytes(name_, shard_->early_bytes(), early_budget_); });
    Report();
  }
  void OnDisconnect(ConnId conn) override { shard_->OnDisconnect(conn, world_.now_us()); }

  void OnPush(SlotId slot, Incarnation incarnation, Seq seq, TableId table, server::Outcome outcome,
              Code code, std::span<const RowKey> keys, std::span<const std::byte> values, const Hyper& hyper,
              Position position) override {
    if (outcome == server::Outcome::kApplied || outcome == server::Outcome::kRefused) {
      auto& positions = world_.context().positions[{incarnation.value, slot.value}];
      if (positions.size() < seq.value) positions.resize(seq.value);
      positions[seq.value - 1] = position;
    }
    const PushEvent event{name_, slot, incarnation, seq, table, outcome, code, keys, values, hyper, position};
    world_.Tell([&](Checker& c) { c.OnPush(event); });
  }
  void OnStaged(SlotId slot, Incarnation incarnation, TableId table, Round round, double weight, bool refused,
                std::span<const RowKey> keys, std::span<const std::byte> values) override {
    const StagedEvent event{name_, slot, incarnation, table, round, weight, refused, keys, values};
    world_.Tell([&](Checker& c) { c.OnStaged(event); });
  }
  void OnSummedUp(TableId table, SlotId slot, Round round, double divisor,
                  const std::vector<server::Contributor>& contributors) override {
    const SummedUpEvent event{name_, slot, table, round, divisor, contributors};
    world_.Tell([&](Checker& c) { c.OnSummedUp(event); });
  }
  void OnClosed(const server::CloseRecord& record) override {
    ++world_.outcome().rounds;
    world_.Tell([&](Checker& c) { c.OnClosed(name_, record); });
  }
  void OnRetired(Incarnation incarnation) override {
    world_.Tell([&](Checker& c) { c.OnRetired(name_, incarnation); });
  }

 private:
  void Tick() {
    shard_->OnTick(world_.now_us());
    Report();
    world_.fabric().Run(owner_.process_, world_.now_us() + kTickUs, [this] { Tick(); });
  }
  void Report() {
    if (shard_->version() == told_.version && shard_->hold_view() == told_.hold_view) return;
    told_ = {shard_->version(), shard_->hold_view(), shard_->hold_rounds(), {}};
    owner_.Post(&owner_.last_report_us_, [this, report = told_] { owner_.OnReport(name_.thread, report); });
  }

  ServerProcess& owner_;
  World& world_;
  ShardName name_;
  Port* port_ = nullptr;
  uint64_t early_budget_ = 0;
  std::unique_ptr<server::Shard> shard_;
  server::ShardReport told_;
  int64_t last_post_us_ = 0;
};

ServerProcess::ServerProcess(World& world, uint32_t index, bool replacement)
    : world_(world), index_(index), replacement_(replacement) {
  const std::string name = "server " + std::to_string(index);
  process_ = world.fabric().AddProcess(ServerHost(index), name);
  port_ =
      world.fabric().AddPort(process_, name, Actor{.role = wire::Role::kServer, .index = index}.Tag(), this);
}

ServerProcess::~ServerProcess() = default;

void ServerProcess::set_gone() {
  gone_ = true;
  for (auto& thread : threads_) {
    // What a server that has left still holds stays visible: the sums are taken at the end.
    if (world_.plan().lose_server) world_.context().shards.erase(thread->name());
  }
}

void ServerProcess::Start() {
  const uint32_t threads = world_.plan().threads[index_];
  reports_.resize(threads);
  for (uint32_t t = 0; t < threads; ++t) threads_.push_back(std::make_unique<ShardThread>(*this, t));
  server::ServerControlOptions options;
  options.scheduler = world_.scheduler_endpoint();
  options.endpoint = world_.server_endpoint(index_);
  options.threads = threads;
  options.wanted_rank = static_cast<int32_t>(index_);
  options.uid = world_.NewUid();
  // A server that has missed the end of the job leaves by itself; shorter here than by default.
  options.register_deadline_us = 60'000'000;
  options.orphan_after_us = 60'000'000;
  server::ServerControl::Events events;
  events.on_registered = [this](uint32_t index, Incarnation incarnation) {
    for (auto& thread : threads_) {
      Post(thread->last_post_us(),
           [t = thread.get(), index, incarnation] { t->Registered(index, incarnation); });
    }
  };
  events.on_state = [this](std::shared_ptr<const wire::ClusterState> state) {
    for (auto& thread : threads_)
      Post(thread->last_post_us(), [t = thread.get(), state] { t->State(state); });
  };
  control_ = server::ServerControl::Make(
      options, *port_, world_.pool(), std::move(events),
      [this](const std::string& line) { world_.Log("server " + std::to_string(index_), line); },
      world_.now_us());
  world_.fabric().Listen(process_, options.endpoint, [this](const wire::InFrame& first) -> Port* {
    auto message = wire::DecodeControl(first.header, first.body());
    const auto* hello = message.ok() ? std::get_if<wire::Hello>(&*message) : nullptr;
    return threads_[hello != nullptr && hello->thread < threads_.size() ? hello->thread : 0]->port();
  });
  world_.fabric().Run(process_, world_.now_us() + kTickUs, [this] { Tick(); });
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
  world_.fabric().Run(process_, world_.now_us() + kTickUs, [this] { Tick(); });
}

void ServerProcess::AfterControl() {
  if (!gone_ && control_->finished()) world_.OnServerLeft(*this, control_->result());
}

}  // namespace cairn::sim

// The real scheduler, with nodes that only speak the protocol: they register, send heartbeats every second,
// take states, and, as servers, report copies and handovers as finished a little later. What they would do
// to each other is not simulated. Counted are the messages and bytes at the scheduler, as they are on the
// wire, while nothing happens, after the death of a server, and after a tenth more servers have joined.
#include "growth.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/core/scheduler.h"
#include "scheduler/metastore/memory_store.h"
#include "wire/control.h"

namespace cairn::sim {
namespace {

constexpr int64_t kGrowthTickUs = 50'000;
constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kCopyUs = 200'000;  // a copy takes so long
constexpr uint32_t kSlotsPerServer = 16;
constexpr int64_t kMostUs = 120 * kSecondUs;  // of any one part

struct Traffic {
  uint64_t in = 0, in_bytes = 0, out = 0, out_bytes = 0, records = 0;
};

class Growth final : private Network {
 public:
  Growth(uint32_t servers, uint32_t workers) : servers_(servers), workers_(workers) {
    scheduler::SchedulerOptions options;
    options.expected_servers = servers;
    options.expected_workers = workers;
    options.slot_count = servers * kSlotsPerServer;
    options.replicas = 2;
    options.cluster_seed = 1;
    auto started =
        scheduler::Scheduler::Start(options, store_, *this, pool_, now_us_, [](const std::string&) {});
    scheduler_ = std::move(*started);
    const auto begun = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < servers; ++i) AddNode(wire::Role::kServer);
    for (uint32_t i = 0; i < workers; ++i) AddNode(wire::Role::kWorker);
    Until([&] { return scheduler_->state().phase == wire::Phase::kRunning && AllHaveIt(); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::printf("%7u %8u  forming, all at once: %llu messages and %.1f MiB out, %.1f s of one core\n",
                servers_, workers_, static_cast<unsigned long long>(traffic_.out),
                static_cast<double>(traffic_.out_bytes) / (1 << 20), took.count());
  }

  void Run() {
    const size_t state_bytes = wire::EncodeState(scheduler_->state()).size();
    Print("nothing happens", Measure([&] { Pass(10 * kSecondUs); }), 10);
    const int64_t begun = now_us_;
    Traffic failover = Measure([&] {
      nodes_[0]->dead = true;
      Until([&] { return scheduler_->state().servers.size() < servers_; });
      Until([&] { return AllHaveIt(); });
      failed_over_us_ = now_us_ - begun;
      Until([&] { return Whole(); });
    });
    Print("failover, until all is copied", failover, Seconds(now_us_ - begun));
    const int64_t grown = now_us_;
    Traffic scale = Measure([&] {
      for (uint32_t i = 0; i < std::max(1u, servers_ / 10); ++i) AddNode(wire::Role::kServer);
      Pass(2 * kSecondUs);
      Until([&] { return Whole() && Spread(); });
    });
    const bool balanced = Whole() && Spread();
    Print(balanced ? "a tenth more servers, until balanced" : "a tenth more servers, the first seconds",
          scale, Seconds(now_us_ - grown));
    std::printf(
        "%7u  the whole state has %zu bytes; %.1f s from the death until everybody knew the new primaries\n",
        servers_, state_bytes, Seconds(failed_over_us_));
  }

 private:
  struct Node {
    wire::Role role;
    uint64_t uid = 0;
    ConnId conn;
    Incarnation incarnation;
    uint32_t rank = 0;
    StateVersion version;
    int64_t beat_us = 0;
    bool dead = false;
    std::map<std::pair<uint32_t, uint64_t>, int64_t> due;  // (slot, added or epoch) → when it is finished
  };

  static double Seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

  void Print(const char* what, const Traffic& t, double seconds) const {
    std::printf("%7u %8u  %-38s %7.1f s  %10.0f  %10.1f  %10.0f  %10.1f  %8llu\n", servers_, workers_, what,
                seconds, static_cast<double>(t.in) / seconds,
                static_cast<double>(t.in_bytes) / seconds / 1024, static_cast<double>(t.out) / seconds,
                static_cast<double>(t.out_bytes) / seconds / 1024,
                static_cast<unsigned long long>(t.records));
    std::fflush(stdout);
  }

  template <class Work>
  Traffic Measure(Work work) {
    traffic_ = {};
    const uint64_t version = scheduler_->state().version.value;
    work();
    traffic_.records = scheduler_->state().version.value - version;
    return traffic_;
  }

  void AddNode(wire::Role role) {
    auto node = std::make_unique<Node>();
    node->role = role;
    node->uid = 1 + nodes_.size();
    node->conn = ConnId{1 + nodes_.size()};
    // Beats are spread over the second, as they are in life.
    node->beat_us = now_us_ + static_cast<int64_t>(nodes_.size() * 7919 % 1000) * 1000;
    nodes_.push_back(std::move(node));
    Node& added = *nodes_.back();
    wire::Register hello;
    hello.role = role;
    hello.uid = added.uid;
    hello.endpoint = {"node" + std::to_string(added.uid),
                      static_cast<uint16_t>(role == wire::Role::kServer ? 7000 : 0)};
    hello.threads = 4;
    Tell(added, hello);
  }

  void Tell(const Node& node, const wire::ControlMessage& message) {
    const Buffer bytes = wire::Flatten(*wire::EncodeControl(message, pool_), pool_);
    ++traffic_.in;
    traffic_.in_bytes += bytes.size();
    auto in = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool_);
    scheduler_->OnMessage(node.conn, *in, now_us_);
  }

  ConnId Connect(const wire::Endpoint&) override { return ConnId{0}; }
  void Close(ConnId) override {}
  void Send(ConnId conn, wire::FramePtr frame) override {
    ++traffic_.out;
    traffic_.out_bytes += frame->bytes();
    if (conn.value == 0 || conn.value > nodes_.size()) return;
    Node& node = *nodes_[conn.value - 1];
    // One frame goes to many: it is read once.
    if (frame != read_) {
      read_ = frame;
      const auto body = std::as_const(frame->head).bytes().subspan(sizeof(wire::FrameHeader));
      auto message = wire::DecodeControl(frame->header(), body);
      said_ = message.ok() ? std::move(*message) : wire::ControlMessage();
    }
    if (const auto* m = std::get_if<wire::Registered>(&said_)) {
      node.incarnation = m->incarnation;
      node.rank = m->rank;
      node.beat_us = std::min(node.beat_us, now_us_ + kGrowthTickUs);
    } else if (const auto* state = std::get_if<wire::StateMessage>(&said_)) {
      Learn(node, state->state.version);
    } else if (const auto* delta = std::get_if<wire::StateDelta>(&said_)) {
      if (delta->base == node.version) Learn(node, delta->changed.version);
    }
  }

  void Learn(Node& node, StateVersion version) {
    if (version <= node.version) return;
    node.version = version;
    node.beat_us = now_us_;  // nodes say at once that they have it
  }

  void Beat(Node& node) {
    node.beat_us = now_us_ + kSecondUs;
    wire::Heartbeat beat;
    beat.incarnation = node.incarnation;
    beat.uid = node.uid;
    beat.version = node.version;
    if (node.role == wire::Role::kServer) {
      beat.hold_version = node.version;
      Report(node, beat);
    }
    Tell(node, beat);
  }

  // What a server would say of its slots: copies and handovers are finished a little after they began.
  void Report(Node& node, wire::Heartbeat& beat) {
    const wire::ClusterState& state = scheduler_->state();
    for (uint32_t slot : primaries_[node.rank]) {
      const wire::SlotOwner& owner = state.slots[slot];
      if (owner.server != node.rank) continue;
      beat.loads.push_back({slot, uint64_t{1} << 20, 0});
      for (const wire::Backup& backup : owner.backups) {
        if (backup.in_sync || !Finished(node, slot, backup.added.value)) continue;
        beat.news.push_back({slot, wire::SlotNews::kCaughtUp, backup.server, owner.epoch, backup.added});
      }
      if (owner.heir != wire::kNoServer)
        beat.news.push_back({slot, wire::SlotNews::kHandedOver, owner.heir, owner.epoch, StateVersion{0}});
    }
  }
  bool Finished(Node& node, uint32_t slot, uint64_t added) {
    auto [it, first] = node.due.try_emplace({slot, added}, now_us_ + kCopyUs);
    if (first) node.beat_us = std::min(node.beat_us, now_us_ + kCopyUs);
    return now_us_ >= it->second;
  }

  void Tick() {
    now_us_ += kGrowthTickUs;
    const wire::ClusterState& state = scheduler_->state();
    if (state.version != indexed_) {
      indexed_ = state.version;
      primaries_.assign(65536, {});
      for (uint32_t s = 0; s < state.slots.size(); ++s) primaries_[state.slots[s].server].push_back(s);
    }
    for (auto& node : nodes_)
      if (!node->dead && node->incarnation.value != 0 && now_us_ >= node->beat_us) Beat(*node);
    scheduler_->OnTick(now_us_);
  }
  void Pass(int64_t us) {
    for (const int64_t end = now_us_ + us; now_us_ < end;) Tick();
  }
  template <class Done>
  void Until(Done done) {
    for (const int64_t end = now_us_ + kMostUs; now_us_ < end && !done();) Tick();
  }

  bool AllHaveIt() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      return node->dead || node->version == scheduler_->state().version;
    });
  }
  // Every slot has its owners, and nothing is under way.
  bool Whole() const {
    for (const wire::SlotOwner& owner : scheduler_->state().slots) {
      if (owner.heir != wire::kNoServer || owner.backups.size() != 1) return false;
      if (!owner.backups[0].in_sync) return false;
    }
    return true;
  }
  // The newest server owns at least three quarters of its share.
  bool Spread() const {
    const wire::ClusterState& state = scheduler_->state();
    const uint32_t newest = state.servers.back().index;
    size_t owned = 0;
    for (const wire::SlotOwner& owner : state.slots)
      owned += owner.server == newest || owner.FindBackup(static_cast<uint16_t>(newest)) != nullptr;
    return owned * state.servers.size() * 4 >= 2 * state.slots.size() * 3;
  }

  const uint32_t servers_, workers_;
  BufferPool pool_;
  scheduler::MemoryStore store_;
  int64_t now_us_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  Traffic traffic_;
  wire::FramePtr read_;
  wire::ControlMessage said_;
  StateVersion indexed_;
  std::vector<std::vector<uint32_t>> primaries_;
  int64_t failed_over_us_ = 0;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
};

}  // namespace

int RunGrowth() {
  std::printf("%7s %8s  %-38s %9s  %10s  %10s  %10s  %10s  %8s\n", "servers", "workers", "", "", "in/s",
              "in KiB/s", "out/s", "out KiB/s", "records");
  for (uint32_t servers : {10u, 100u, 1000u}) {
    const auto begun = std::chrono::steady_clock::now();
    Growth growth(servers, servers * 10);
    growth.Run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::printf("%7u  simulated in %.1f s in all\n", servers, took.count());
  }
  return 0;
}

}  // namespace cairn::sim

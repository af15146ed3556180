// For the scheduler's tests: a network that keeps what was sent, a store that can fail, and nodes
// that say what a test tells them to. No time passes but by Advance().
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/core/core.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/metastore/memory_store.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

class FakeNetwork final : public Network {
 public:
  ConnId Connect(const wire::Endpoint&) override { return ConnId(0); }
  void Send(ConnId conn, wire::FramePtr frame) override {
    BufferPool pool;
    const Buffer flat = wire::Flatten(*frame, pool);
    auto in = wire::Parse(flat.bytes(), wire::kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok()) << in.status().ToString();
    auto message = wire::DecodeControl(in->header, in->body());
    ASSERT_TRUE(message.ok()) << message.status().ToString();
    // A difference says what the whole state would say: tests see that, unless a node claims to have a
    // state that nobody was told.
    if (const auto* delta = std::get_if<wire::StateDelta>(&*message); delta && told.contains(delta->base)) {
      auto state = wire::Apply(told[delta->base], *delta);
      ASSERT_TRUE(state.ok()) << state.status().ToString();
      bases[conn] = delta->base;
      message = Result<wire::ControlMessage>(wire::ControlMessage(wire::StateMessage{std::move(*state)}));
      ++deltas;
    }
    if (const auto* whole = std::get_if<wire::StateMessage>(&*message))
      told[whole->state.version] = whole->state;
    if (std::holds_alternative<wire::StateMessage>(*message)) told_states.push_back(conn);
    sent[conn].push_back(std::move(*message));
    ++count;
  }
  void Close(ConnId conn) override { closed.push_back(conn); }
  bool SameHost(ConnId conn) const override { return here.contains(conn); }

  std::map<ConnId, std::vector<wire::ControlMessage>> sent;
  std::vector<ConnId> told_states;  // in order
  std::vector<ConnId> closed;
  std::set<ConnId> here;  // those of nodes on the scheduler's host
  std::map<StateVersion, wire::ClusterState> told;
  std::map<ConnId, StateVersion> bases;  // what the last difference that was sent there is one to
  size_t count = 0, deltas = 0;
};

// Fails the append after `appends_left` more, whether or not the record got through.
class FailingStore final : public MetaStore {
 public:
  explicit FailingStore(MemoryStore& below) : below_(below) {}
  Result<std::vector<std::vector<std::byte>>> Load() override { return below_.Load(); }
  Status Append(std::span<const std::byte> record) override {
    if (appends_left == 0) {
      if (record_gets_through) (void)below_.Append(record);
      return {Code::kIo, "the disk is full"};
    }
    if (appends_left > 0) --appends_left;
    return below_.Append(record);
  }
  Status Replace(std::span<const std::byte> record) override {
    if (replace_fails) return {Code::kIo, "the disk is full"};
    return below_.Replace(record);
  }
  Status Confirm() override { return confirm; }

  Status confirm;         // whether another scheduler leads by now
  int appends_left = -1;  // -1: never fails
  bool replace_fails = false;
  bool record_gets_through = false;

 private:
  MemoryStore& below_;
};

struct FakeNode {
  wire::Register hello;
  ConnId conn;
  Incarnation incarnation;
  uint32_t rank = 0;
  wire::Heartbeat beat;
};

class FakeCluster {
 public:
  explicit FakeCluster(SchedulerOptions o = {}) : options(std::move(o)), store(memory) {
    options.endpoint = {"10.0.0.1", 8118};
    options.cluster_seed = 7;
  }
  static SchedulerOptions Options(uint32_t servers, uint32_t workers) {
    SchedulerOptions o;
    o.expected_servers = servers;
    o.expected_workers = workers;
    o.slot_count = 16;
    return o;
  }

  void Start() {
    auto started = Scheduler::Start(options, store, network, pool, now_us,
                                    [this](const std::string& line) { lines.push_back(line); });
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    scheduler = std::move(*started);
  }
  // A killed scheduler: connections are gone, the log stays.
  void Restart() {
    scheduler.reset();
    network.sent.clear();
    Start();
  }
  const wire::ClusterState& state() const { return scheduler->state(); }
  const DurableState& durable() const { return static_cast<SchedulerCore&>(*scheduler).durable(); }

  void Tell(ConnId conn, const wire::ControlMessage& message) {
    wire::FramePtr frame = wire::EncodeControl(message, pool);
    const Buffer flat = wire::Flatten(*frame, pool);
    auto in = wire::Parse(flat.bytes(), wire::kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok()) << in.status().ToString();
    scheduler->OnMessage(conn, *in, now_us);
  }
  // The newest message of this type on the connection.
  template <class T>
  std::optional<T> Last(ConnId conn) {
    auto& messages = network.sent[conn];
    for (auto it = messages.rbegin(); it != messages.rend(); ++it)
      if (const T* message = std::get_if<T>(&*it)) return *message;
    return std::nullopt;
  }
  ConnId NewConn() { return ConnId(++conns_); }

  FakeNode Server(uint16_t port, uint32_t threads = 1, int32_t wanted = -1) {
    FakeNode node;
    node.hello = {.role = wire::Role::kServer,
                  .uid = 1000u + port,
                  .endpoint = {"10.0.1.1", port},
                  .threads = threads,
                  .wanted_rank = wanted};
    return Register(std::move(node));
  }
  FakeNode Worker(uint64_t uid, int32_t wanted = -1) {
    FakeNode node;
    node.hello = {
        .role = wire::Role::kWorker, .uid = uid, .endpoint = {"10.0.2.1", 0}, .wanted_rank = wanted};
    return Register(std::move(node));
  }
  FakeNode Register(FakeNode node) {
    node.conn = NewConn();
    Tell(node.conn, node.hello);
    if (auto registered = Last<wire::Registered>(node.conn)) {
      node.incarnation = registered->incarnation;
      node.rank = registered->rank;
      node.beat.incarnation = node.incarnation;
      node.beat.uid = node.hello.uid;
      node.beat.barrier_count = registered->barrier_base;
    }
    return node;
  }
  // A heartbeat of a node that has taken in the newest state, unless told to be behind. A server
  // reports the given rounds for a pending view.
  void Beat(FakeNode& node, bool takes_state = true, std::vector<wire::TableRound> rounds = {}) {
    if (takes_state) {
      node.beat.version = state().version;
      if (node.hello.role == wire::Role::kServer) {
        node.beat.hold_view = state().pending_view;
        node.beat.hold_version = state().version;
        node.beat.open_rounds =
            node.beat.hold_view == ViewNumber(0) ? std::vector<wire::TableRound>{} : rounds;
        node.beat.end_confirmed =
            state().phase == wire::Phase::kEnded || state().phase == wire::Phase::kFailed;
      }
    }
    Tell(node.conn, node.beat);
  }
  // A heartbeat of a server that has finished every copy and handover of its slots, and says so.
  void BeatDone(FakeNode& node) {
    node.beat.news.clear();
    node.beat.loads.clear();
    for (uint32_t slot = 0; slot < state().slots.size(); ++slot) {
      const wire::SlotOwner& owner = state().slots[slot];
      if (owner.server != node.rank) continue;
      using News = wire::SlotNews;
      for (const wire::Backup& backup : owner.backups)
        if (!backup.in_sync)
          node.beat.news.push_back({slot, News::kCaughtUp, backup.server, owner.epoch, backup.added});
      if (owner.heir != wire::kNoServer)
        node.beat.news.push_back({slot, News::kHandedOver, owner.heir, owner.epoch, StateVersion(0)});
      if (slot < bytes.size())
        node.beat.loads.push_back({slot, bytes[slot], 0, slot < pushed.size() ? pushed[slot] : 0, 0});
    }
    Beat(node);
    node.beat.news.clear();
  }
  // Time passes, and servers do what the state asks of them.
  void AdvanceDone(int64_t us, const std::vector<FakeNode*>& servers, const std::vector<FakeNode*>& others) {
    for (int64_t end = now_us + us; now_us < end;) {
      now_us += 100'000;
      for (FakeNode* node : servers) BeatDone(*node);
      for (FakeNode* node : others) Beat(*node);
      scheduler->OnTick(now_us);
    }
  }
  // Time passes in ticks of 100 ms; `alive` go on heartbeating.
  void Advance(int64_t us, const std::vector<FakeNode*>& alive = {}) {
    for (int64_t end = now_us + us; now_us < end;) {
      now_us += 100'000;
      for (FakeNode* node : alive) Beat(*node);
      scheduler->OnTick(now_us);
    }
  }
  size_t CountLogged(const std::string& part) const {
    size_t count = 0;
    for (const std::string& line : lines) count += line.find(part) != std::string::npos ? 1 : 0;
    return count;
  }
  bool Logged(const std::string& part) const {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }

  SchedulerOptions options;
  MemoryStore memory;
  FailingStore store;
  FakeNetwork network;
  BufferPool pool;
  int64_t now_us = 1'000'000;
  std::vector<std::string> lines;
  std::vector<uint64_t> bytes, pushed;  // of the slots, as BeatDone reports them
  std::unique_ptr<Scheduler> scheduler;

 private:
  uint64_t conns_ = 0;
};

inline TableSpec DenseSync(const std::string& name, uint64_t size = 100) {
  return {.name = name, .mode = Mode::kSync, .optimizer = OptimizerKind::kSgd, .size = size};
}

}  // namespace cairn::scheduler

// Several servers of one thread each, under one state, whose replication streams a test carries by
// hand: Carry() delivers everything that is under way, Cut() loses what goes to a server.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "server/shard/dense_harness.h"
#include "wire/replica.h"

namespace cairn::server {

class OwnersHarness {
 public:
  static constexpr uint32_t kSlots = ShardHarness::kSlots;

  // Server 0 is the primary of every slot, the first `in_sync` others are its backups.
  explicit OwnersHarness(uint32_t servers, uint32_t in_sync, ShardOptions options = {}) {
    for (uint32_t i = 0; i < servers; ++i) nodes.push_back(std::make_unique<DenseHarness>(2, options, i));
    state = nodes[0]->state;
    state.servers.clear();
    state.replicas = in_sync + 1;
    for (uint32_t i = 0; i < servers; ++i)
      state.servers.push_back({i, Incarnation{i + 1}, {"host", static_cast<uint16_t>(i + 1)}, 1, false});
    for (wire::SlotOwner& owner : state.slots) {
      owner = {0, 0, 1, state.version.Next(), wire::kNoServer, {}};
      for (uint16_t i = 1; i <= in_sync; ++i) owner.backups.push_back({i, 0, true, state.version.Next()});
    }
    Publish();
    for (auto& node : nodes)
      for (uint32_t rank = 0; rank < 2; ++rank) node->Connect(rank);
    for (auto& node : nodes) node->SkipAnswers();
    Carry();
  }
  DenseHarness& operator[](uint32_t server) { return *nodes[server]; }

  void Publish() {
    state.version = state.version.Next();
    for (uint32_t i = 0; i < nodes.size(); ++i)
      if (!deaf.contains(i)) Tell(i);
  }
  void Tell(uint32_t server) {
    nodes[server]->state = state;
    nodes[server]->shard->OnState(std::make_shared<wire::ClusterState>(state), now);
  }
  TableId AddTable(TableSpec spec) {
    const TableId id = state.next_table;
    state.next_table = id.Next();
    state.tables.push_back({id, std::move(spec), state.view});
    Publish();
    return id;
  }
  // The scheduler's decisions.
  void Fail(uint32_t dead, uint16_t heir) {
    gone.insert(dead);
    std::erase_if(state.servers, [&](const auto& server) { return server.index == dead; });
    for (wire::SlotOwner& owner : state.slots) {
      std::erase_if(owner.backups, [&](const auto& b) { return b.server == dead || b.server == heir; });
      owner = {heir, 0, owner.epoch + 1, state.version.Next(), wire::kNoServer, owner.backups};
    }
    Publish();
  }
  void AddBackup(uint16_t server) {
    for (wire::SlotOwner& owner : state.slots)
      owner.backups.push_back({server, 0, false, state.version.Next()});
    Publish();
  }
  void MarkInSync(uint16_t server) {
    for (wire::SlotOwner& owner : state.slots)
      for (wire::Backup& backup : owner.backups)
        if (backup.server == server) backup.in_sync = true;
    Publish();
  }
  std::vector<wire::SlotNews> News(uint32_t server, wire::SlotNews::Kind kind) const {
    auto news = nodes[server]->shard->news();
    std::erase_if(news, [&](const wire::SlotNews& n) { return n.kind != kind; });
    return news;
  }

  // Everything that is under way between servers, until nothing is.
  void Carry() {
    for (int i = 0; i < 1000 && CarryOnce(); ++i) {
    }
  }
  bool CarryOnce() {
    bool any = false;
    for (uint32_t from = 0; from < nodes.size(); ++from) {
      for (auto [conn, to] : std::exchange(nodes[from]->net.connecting, {})) {
        any = true;
        const uint32_t peer = to.port - 1u;
        if (gone.contains(peer) || gone.contains(from)) continue;
        pipes.push_back({from, conn, peer, ConnId{2000 + pipes.size()}});
        nodes[from]->shard->OnConnected(conn, now);
      }
    }
    for (size_t p = 0; p < pipes.size(); ++p) {
      any |= Move(pipes[p].from, pipes[p].conn, pipes[p].to, pipes[p].peer_conn);
      any |= Move(pipes[p].to, pipes[p].peer_conn, pipes[p].from, pipes[p].conn);
    }
    return any;
  }

  std::vector<std::unique_ptr<DenseHarness>> nodes;
  wire::ClusterState state;
  std::set<uint32_t> gone;     // dead: nothing comes from or to them
  std::set<uint32_t> deaf;     // do not hear of new states
  std::set<uint32_t> stalled;  // what goes to them waits
  int64_t now = 0;
  std::function<void(uint32_t to, const wire::OpView&)> on_operation;  // sees what is carried
  std::function<void(uint32_t to, wire::InFrame&)> alter;              // may change it before
  std::function<bool(uint32_t to, const wire::InFrame&)> drop;         // says what is lost

 private:
  struct Pipe {
    uint32_t from;
    ConnId conn;
    uint32_t to;
    ConnId peer_conn;
  };
  bool Move(uint32_t from, ConnId conn, uint32_t to, ConnId peer_conn) {
    if (stalled.contains(to)) return false;
    bool any = false;
    while (auto frame = nodes[from]->NextOn(conn)) {
      if (gone.contains(from) || gone.contains(to)) continue;
      any = true;
      if (drop && drop(to, *frame)) continue;
      if (alter) alter(to, *frame);
      if (on_operation && frame->header.type == wire::FrameType::kReplicate) {
        wire::OpReader reader(frame->body());
        for (wire::OpView op; reader.Next(&op);) on_operation(to, op);
      }
      nodes[to]->shard->OnMessage(peer_conn, *frame, now);
    }
    return any;
  }
  std::vector<Pipe> pipes;
};

}  // namespace cairn::server

// For tests: a network without wires, and a scheduler and shard threads whose every answer a test
// decides. Control messages are answered at once unless told otherwise; data frames wait in the
// inbox of their shard thread.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/partition/partition.h"
#include "client/protocol/client_core.h"
#include "transport/network.h"
#include "wire/control.h"
#include "wire/data.h"

namespace cairn::client {

class FakeNetwork final : public Network {
 public:
  explicit FakeNetwork(BufferPool& pool) : pool_(pool) {}
  struct Conn {
    wire::Endpoint to;
    bool connected = false, open = true;
    std::deque<wire::InFrame> sent;
  };
  ConnId Connect(const wire::Endpoint& to) override {
    conns[ConnId{++last_}].to = to;
    return ConnId{last_};
  }
  void Send(ConnId conn, wire::FramePtr frame) override {
    Conn& c = conns.at(conn);
    if (!c.open || !c.connected) return;
    if (hold_frames) held.push_back(frame);
    if (keeps_last) {
      last = std::move(frame);
      return;
    }
    Buffer flat = wire::Flatten(*frame, pool_);
    Result<wire::InFrame> in = wire::Parse(flat.bytes(), wire::kMaxBodyBytes, pool_);
    CAIRN_CHECK(in.ok());
    c.sent.push_back(std::move(*in));
  }
  void Close(ConnId conn) override { conns.at(conn).open = false; }
  uint64_t BulkProgress(ConnId) const override { return bulk_progress; }
  bool FellBack(ConnId) const override { return fell_back; }

  std::map<ConnId, Conn> conns;
  uint64_t bulk_progress = 0;
  bool fell_back = false;
  bool hold_frames = false;  // as a transport with a full socket would
  std::vector<wire::FramePtr> held;
  bool keeps_last = false;  // frames are not delivered: the test looks at `last`
  wire::FramePtr last;

 private:
  BufferPool& pool_;
  uint64_t last_ = 0;
};

using Link = std::pair<uint32_t, uint32_t>;  // server, thread

class FakeCluster : public ClientObserver {
 public:
  explicit FakeCluster(uint32_t servers = 2, uint32_t threads = 2, uint32_t slots = 16) : network(pool) {
    options.scheduler = {"127.0.0.1", 8118};
    options.uid = 77;
    options.seed = 5;
    state.cluster_id = "c";
    state.term = Term{1};
    state.version = StateVersion{5};
    state.phase = wire::Phase::kRunning;
    state.expected_servers = servers;
    state.expected_workers = 2;
    for (uint32_t i = 0; i < servers; ++i) {
      state.servers.push_back({i, Incarnation{1 + i}, {"10.0.0." + std::to_string(i), 7000}, threads});
    }
    for (uint32_t s = 0; s < slots; ++s) {
      const uint32_t at = s * servers * threads / slots;
      state.slots.push_back(
          {static_cast<uint16_t>(at % servers), static_cast<uint16_t>(at / servers), 1, {}});
    }
    state.workers = {{Rank{0}, Incarnation{7}, ViewNumber{1}, {}},
                     {Rank{1}, Incarnation{8}, ViewNumber{1}, {}}};
    state.next_incarnation = Incarnation{9};
    state.view = ViewNumber{1};
    state.views = {{ViewNumber{1}, {}}};
  }

  void Make() {
    core = ClientCore::Make(
        options, network, pool, [this](const std::string& line) { log.push_back(line); }, now, this);
  }
  // Started, with every control message answered.
  void StartAll() {
    Make();
    core->Start(now + 10'000'000, [this](Status s) { started = s; }, now);
    Run();
    CAIRN_CHECK(started && started->ok());
  }
  // Connects what wants to be, and answers control messages until nothing is left to answer.
  void Run() {
    bool more = true;
    while (more) {
      more = false;
      std::vector<ConnId> ids;
      for (auto& [id, conn] : network.conns) ids.push_back(id);
      for (ConnId id : ids) more |= Serve(id);
    }
  }
  void Tick(int64_t us) {
    now += us;
    core->OnTick(now);
    Run();
  }
  // In steps, as a driver does.
  void Wait(int64_t us, int64_t step = 100'000) {
    for (int64_t end = now + us; now < end;) Tick(std::min(step, end - now));
  }

  void Deliver(ConnId conn, wire::FramePtr frame) {
    Buffer flat = wire::Flatten(*frame, pool);
    Result<wire::InFrame> in = wire::Parse(flat.bytes(), wire::kMaxBodyBytes, pool);
    CAIRN_CHECK(in.ok());
    core->OnMessage(conn, *in, now);
  }
  void Say(ConnId conn, const wire::ControlMessage& message) {
    Deliver(conn, wire::EncodeControl(message, pool));
  }
  ConnId SchedulerConn() const {
    ConnId found{0};
    for (auto& [id, conn] : network.conns) {
      if (conn.open && IsScheduler(conn.to)) found = id;
    }
    return found;
  }
  void NewState() {
    state.version = state.version.Next();
    Say(SchedulerConn(), wire::StateMessage{state});
    Run();
  }
  // In the state, which is still to be told: another primary, under the next epoch and version.
  void Move(uint32_t slot, Link to) {
    wire::SlotOwner& owner = state.slots[slot];
    owner.server = static_cast<uint16_t>(to.first);
    owner.thread = static_cast<uint16_t>(to.second);
    ++owner.epoch;
    owner.since = state.version.Next();
  }
  // The same: a server dies, and those that are left take its slots in turn.
  void Kill(uint32_t server) {
    std::erase_if(state.servers, [&](const auto& info) { return info.index == server; });
    for (uint32_t slot = 0, next = 0; slot < state.slots.size(); ++slot) {
      if (state.slots[slot].server != server) continue;
      Move(slot, {state.servers[next++ % state.servers.size()].index, state.slots[slot].thread});
    }
  }
  // The same: a server joins, without slots.
  void Join(uint32_t index, uint32_t threads = 1) {
    const Incarnation incarnation{state.next_incarnation.value};
    state.next_incarnation = state.next_incarnation.Next();
    const wire::Endpoint endpoint{"10.0.1." + std::to_string(incarnation.value), 7000};
    const auto at = std::find_if(state.servers.begin(), state.servers.end(),
                                 [&](const auto& info) { return info.index > index; });
    state.servers.insert(at, {index, incarnation, endpoint, threads});
  }
  void Break(Link link) {
    const ConnId conn = conn_of.at(link);
    network.conns.at(conn).open = false;
    core->OnDisconnect(conn, now);
  }

  std::deque<wire::InFrame>& Inbox(Link link) { return inbox[link]; }
  wire::InFrame Take(Link link) {
    CAIRN_CHECK(!inbox[link].empty());
    wire::InFrame frame = std::move(inbox[link].front());
    inbox[link].pop_front();
    return frame;
  }
  void Answer(Link link, wire::FramePtr frame) {
    frame->header().state_version = answers_under.value;
    wire::Seal(*frame);
    Deliver(conn_of.at(link), std::move(frame));
    Run();
  }
  void AckPush(Link link, const wire::FrameHeader& push) {
    Answer(link, wire::EncodePushReply(push, {}, "", pool));
  }
  void Gap(Link link, const wire::FrameHeader& push, uint32_t slot, uint64_t resume) {
    const wire::SlotEntry gap{slot, static_cast<uint32_t>(Code::kUnavailable), resume};
    Answer(link, wire::EncodePushReply(push, {&gap, 1}, "a push before this one is missing", pool));
  }
  void Error(Link link, const wire::FrameHeader& request, Code code, const std::string& text) {
    Answer(link, wire::EncodeError(request, Status(code, text), pool));
  }
  // Values of as many bytes as `values`, each slot at `position`.
  void AnswerValues(Link link, const wire::InFrame& request, std::vector<std::byte> values, Position position,
                    uint16_t flags = 0) {
    const bool pull = request.header.type == wire::FrameType::kPull;
    std::vector<wire::SlotEntry> entries;
    const auto asked = pull ? wire::DecodePull(request.header, request.body())->entries
                            : wire::DecodePush(request.header, request.body())->entries;
    for (wire::SlotEntry entry : asked) entries.push_back({entry.slot, entry.count, position.packed});
    AnswerEntries(link, request, entries, std::move(values), flags);
  }
  void AnswerEntries(Link link, const wire::InFrame& request, const std::vector<wire::SlotEntry>& entries,
                     std::vector<std::byte> values, uint16_t flags) {
    const bool pull = request.header.type == wire::FrameType::kPull;
    wire::DataParts parts;
    parts.type = pull ? wire::FrameType::kPullReply : wire::FrameType::kRoundReply;
    parts.flags = flags;
    parts.request_id = request.header.request_id;
    parts.incarnation = Incarnation{request.header.incarnation};
    parts.table = TableId{request.header.table};
    parts.round = Round{request.header.round};
    parts.entries = entries;
    if (!values.empty()) parts.values = {values};
    Answer(link, wire::EncodeData(std::move(parts), pool));
  }

  // The first phase of a round is over here: what is summed up in these slots.
  void AnswerReport(Link link, const wire::InFrame& request,
                    const std::vector<std::pair<uint32_t, wire::SlotReport>>& reports, uint16_t flags = 0) {
    std::vector<wire::SlotEntry> entries;
    std::vector<std::byte> values;
    for (const auto& [slot, report] : reports) {
      entries.push_back({slot, sizeof(report) / sizeof(float), 0});
      const auto bytes = std::as_bytes(std::span(&report, 1));
      values.insert(values.end(), bytes.begin(), bytes.end());
    }
    AnswerEntries(link, request, entries, std::move(values), flags | wire::kFlagReport);
  }

  const wire::TableInfo& AddTable(TableSpec spec) {
    const TableId id = state.next_table;
    state.tables.push_back({id, std::move(spec), state.view});
    state.next_table = id.Next();
    return state.tables.back();
  }
  std::vector<Link> Links() const {
    std::vector<Link> links;
    for (const wire::ServerInfo& server : state.servers) {
      for (uint32_t t = 0; t < server.threads; ++t) links.push_back({server.index, t});
    }
    return links;
  }
  Link LinkOfSlot(uint32_t slot) const { return {state.slots[slot].server, state.slots[slot].thread}; }

  // ClientObserver
  void OnAcknowledged(SlotId slot, Incarnation, Seq seq) override {
    acknowledged.push_back({slot.value, seq.value});
  }
  void OnRoundAcknowledged(Incarnation, TableId, Round round, const Status& outcome) override {
    rounds.push_back({round.value, outcome.code()});
  }
  void OnRead(SlotId slot, Incarnation, TableId, Position position, const std::byte*) override {
    reads.push_back({slot.value, position.packed});
  }

  BufferPool pool;
  FakeNetwork network;
  ClientCoreOptions options;
  wire::ClusterState state;
  std::unique_ptr<ClientCore> core;
  int64_t now = 1'000'000;
  std::optional<Status> started;
  std::vector<std::string> log;
  bool connects = true, scheduler_answers = true, greets = true, tables_answered = true,
       leave_answered = true, standbys_answer = true;
  StateVersion answers_under;  // what shards' answers say of their state; 0: nothing
  size_t leader = 0;           // of options.schedulers; the others stand by
  std::string awaiting;
  uint32_t blocked_slots = 0;
  uint64_t barrier_open = 0, barrier_base = 0, barrier_count = 0;
  std::map<Link, ConnId> conn_of;
  std::map<Link, std::deque<wire::InFrame>> inbox;
  std::vector<wire::ControlMessage> heard;                           // by the scheduler
  std::vector<std::pair<ConnId, wire::ControlMessage>> told_shards;  // but for Hello
  std::vector<std::pair<uint32_t, uint64_t>> acknowledged, reads;
  std::vector<std::pair<uint64_t, Code>> rounds;

 private:
  bool Serve(ConnId id) {
    FakeNetwork::Conn& conn = network.conns.at(id);
    if (!conn.open) return false;
    if (!conn.connected && connects) {
      conn.connected = true;
      core->OnConnected(id, now);
      return true;
    }
    if (conn.sent.empty()) return false;
    wire::InFrame frame = std::move(conn.sent.front());
    conn.sent.pop_front();
    if (IsScheduler(conn.to)) {
      OnScheduler(id, *wire::DecodeControl(frame.header, frame.body()));
    } else if (frame.header.type == wire::FrameType::kControl) {
      const wire::ControlMessage message = *wire::DecodeControl(frame.header, frame.body());
      if (!std::holds_alternative<wire::Hello>(message)) {
        told_shards.emplace_back(id, message);
        return true;
      }
      const auto& hello = std::get<wire::Hello>(message);
      const auto server = std::find_if(state.servers.begin(), state.servers.end(), [&](const auto& info) {
        return info.incarnation == hello.server_incarnation;
      });
      if (server == state.servers.end()) return true;  // it is dead
      conn_of[{server->index, hello.thread}] = id;
      if (greets) Say(id, wire::HelloReply{});
    } else {
      for (auto& [link, c] : conn_of) {
        if (c == id) {
          inbox[link].push_back(std::move(frame));
          break;
        }
      }
    }
    return true;
  }

  bool IsScheduler(const wire::Endpoint& endpoint) const {
    const auto& all = options.schedulers;
    return all.empty() ? endpoint == options.scheduler
                       : std::find(all.begin(), all.end(), endpoint) != all.end();
  }

  void OnScheduler(ConnId id, const wire::ControlMessage& message) {
    if (!options.schedulers.empty() && network.conns.at(id).to != options.schedulers.at(leader)) {
      if (standbys_answer) Say(id, wire::Refusal{0, Code::kUnavailable, "this scheduler stands by"});
      return;
    }
    heard.push_back(message);
    if (!scheduler_answers) return;
    if (const auto* hello = std::get_if<wire::Register>(&message)) {
      Say(id, wire::Registered{hello->uid, state.cluster_id, state.term, Incarnation{7}, 0, barrier_base});
    } else if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) {
      barrier_count = beat->barrier_count;
      Say(id, wire::HeartbeatReply{state.term, state.version, barrier_open, awaiting, blocked_slots});
      if (beat->version < state.version) Say(id, wire::StateMessage{state});
    } else if (const auto* table = std::get_if<wire::CreateTable>(&message);
               table != nullptr && tables_answered) {
      if (state.FindTable(table->spec.name) == nullptr) {
        AddTable(table->spec);
        state.version = state.version.Next();
      }
      Say(id, wire::TableReply{table->request, Code::kOk, "", state.FindTable(table->spec.name)->id,
                               state.version});
    } else if (const auto* tables = std::get_if<wire::CreateTables>(&message);
               tables != nullptr && tables_answered) {
      for (const TableSpec& spec : tables->specs)
        if (state.FindTable(spec.name) == nullptr) AddTable(spec);
      state.version = state.version.Next();
      Say(id, wire::TableReply{tables->request, Code::kOk, "", TableId{0}, state.version});
    } else if (const auto* leave = std::get_if<wire::Leave>(&message); leave != nullptr && leave_answered) {
      Say(id, wire::LeaveReply{leave->incarnation});
    }
  }
};

}  // namespace cairn::client

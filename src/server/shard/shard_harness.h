// A shard under test: a network that only records, a cluster state to play with, and workers that
// say exactly what a test wants. Slots 0 to 3 belong to the shard, slot 4 to another thread.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/shard/shard.h"
#include "wire/data.h"

namespace cairn::server {

// Sent frames, parsed back, per connection in order.
class RecordingNetwork final : public Network {
 public:
  explicit RecordingNetwork(BufferPool& pool) : pool_(pool) {}
  // Apart from the workers' connections, which count from 1.
  ConnId Connect(const wire::Endpoint& to) override {
    connecting.emplace_back(ConnId{1000 + ++connects}, to);
    return connecting.back().first;
  }
  void Send(ConnId conn, wire::FramePtr frame) override {
    Buffer bytes = wire::Flatten(*frame, pool_);
    Result<wire::InFrame> parsed = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool_);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    sent[conn].push_back(std::move(*parsed));
  }
  void Close(ConnId conn) override { closed.push_back(conn); }

  std::map<ConnId, std::vector<wire::InFrame>> sent;
  std::vector<ConnId> closed;
  uint64_t connects = 0;
  std::vector<std::pair<ConnId, wire::Endpoint>> connecting;  // asked for and not yet looked at

 private:
  BufferPool& pool_;
};

struct PushEvent {
  SlotId slot;
  Incarnation incarnation;
  Seq seq;
  Outcome outcome;
  Code code;
  Position position;
};
struct SummedEvent {
  SlotId slot;
  double divisor;
  std::vector<Contributor> contributors;
};
class RecordingObserver final : public ShardObserver {
 public:
  void OnPush(SlotId slot, Incarnation incarnation, Seq seq, TableId, Outcome outcome, Code code,
              std::span<const RowKey>, std::span<const std::byte>, const Hyper&, Position position) override {
    pushes.push_back({slot, incarnation, seq, outcome, code, position});
  }
  void OnStaged(SlotId, Incarnation incarnation, TableId, Round, double, bool refused,
                std::span<const RowKey>, std::span<const std::byte>) override {
    staged.emplace_back(incarnation, refused);
  }
  void OnClosed(const CloseRecord& record) override { closed.push_back(record); }
  void OnSummedUp(TableId, SlotId slot, Round, double divisor, const std::vector<Contributor>& contributors,
                  Position) override {
    summed.push_back({slot, divisor, contributors});
  }
  void OnRetired(Incarnation incarnation) override { retired.push_back(incarnation); }

  std::vector<PushEvent> pushes;
  std::vector<std::pair<Incarnation, bool>> staged;
  std::vector<CloseRecord> closed;
  std::vector<SummedEvent> summed;
  std::vector<Incarnation> retired;
};

// What a worker puts into a frame. Each part is one row of a sparse table: (slot, value, number).
struct Row {
  uint32_t slot = 0;
  float value = 0;
  uint64_t number = 0;
};

class ShardHarness {
 public:
  static constexpr uint32_t kSlots = 5, kOwned = 4;
  static constexpr Incarnation kServer{1};

  explicit ShardHarness(uint32_t workers = 2, ShardOptions options = {}, uint32_t index = 0)
      : net(pool), server(Incarnation{index + 1}) {
    options.name = "server " + std::to_string(index) + " thread 0";
    shard = Shard::Make(options, net, pool, &seen);
    state.cluster_id = "test";
    state.phase = wire::Phase::kRunning;
    state.servers = {{0, kServer, {"host", 1}, 2}};
    for (uint32_t s = 0; s < kSlots; ++s)
      state.slots.push_back(
          {0, static_cast<uint16_t>(s < kOwned ? 0 : 1), 1, StateVersion{1}, wire::kNoServer, {}});
    state.next_incarnation = Incarnation{10};
    state.view = ViewNumber{1};
    state.views = {{ViewNumber{1}, {}}};
    for (uint32_t rank = 0; rank < workers; ++rank) AddWorker(rank, ViewNumber{1});
    shard->OnRegistered(index, server);
    if (index > 0) return;  // its state comes from the one who has several of these
    Publish();
    for (uint32_t rank = 0; rank < workers; ++rank) Connect(rank);
  }

  // The state.
  void Publish() {
    state.version = state.version.Next();
    shard->OnState(std::make_shared<wire::ClusterState>(state), now);
  }
  void AddWorker(uint32_t rank, ViewNumber join_view) {
    incarnations[rank] = state.next_incarnation;
    state.next_incarnation = state.next_incarnation.Next();
    state.workers.push_back({Rank{rank}, incarnations[rank], join_view, {"host", 0}});
  }
  void Kill(uint32_t rank) {
    std::erase_if(state.workers, [&](auto& worker) { return worker.incarnation == incarnations[rank]; });
    Publish();
  }
  TableId AddTable(TableSpec spec) {
    const TableId id = state.next_table;
    state.next_table = id.Next();
    state.tables.push_back({id, std::move(spec), state.view});
    Publish();
    return id;
  }
  static TableSpec Sparse(Mode mode, OptimizerKind optimizer = OptimizerKind::kSgd) {
    TableSpec spec;
    spec.name = "w";
    spec.kind = TableKind::kSparse;
    spec.mode = mode;
    spec.optimizer = optimizer;
    spec.dim = 1;
    return spec;
  }
  void DropTable(TableId id) {
    std::erase_if(state.tables, [&](auto& table) { return table.id == id; });
    Publish();
  }

  // Connections.
  ConnId Connect(uint32_t rank) {
    const ConnId conn{++next_conn};
    conns[rank] = conn;
    wire::Hello hello;
    hello.cluster_id = "test";
    hello.incarnation = incarnations[rank];
    hello.server_incarnation = server;
    Control(conn, hello);
    return conn;
  }
  void Control(ConnId conn, const wire::ControlMessage& message) {
    wire::FramePtr frame = wire::EncodeControl(message, pool);
    Deliver(conn, *frame);
  }
  void Deliver(ConnId conn, const wire::Frame& frame) {
    Buffer bytes = wire::Flatten(frame, pool);
    Result<wire::InFrame> parsed = wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    shard->OnMessage(conn, *parsed, now);
  }
  void Deliver(uint32_t rank, const wire::FramePtr& frame) { Deliver(conns[rank], *frame); }

  // Frames. Request ids rise; a copy of a frame has the same one.
  static RowKey KeyIn(uint32_t slot) {
    for (RowKey key = 0;; ++key)
      if (wire::SlotOfKey(key, kSlots).value == slot) return key;
  }
  wire::DataParts Parts(uint32_t rank, wire::FrameType type, TableId table) {
    wire::DataParts parts;
    parts.type = type;
    parts.request_id = ++next_request;
    parts.incarnation = incarnations[rank];
    parts.state_version = state.version;
    parts.table = table;
    return parts;
  }
  struct RoundOptions {
    std::optional<std::vector<uint32_t>> done;  // the mark's bitmap
    double weight = 1;
    float lr = 1;
    bool pull_after = false;
    uint16_t flags = 0;  // wire::ParamFlag
    double scale = 1;
    double value_scale = 1;
    PushOp op = PushOp::kUpdate;
    uint8_t column = 0;
    double momentum = 0;
    uint64_t step = 0;
    double weight_decay = 0;

    wire::PushParams params() const {
      wire::PushParams params;
      params.weight = weight;
      params.lr = lr;
      params.beta1 = momentum;
      params.flags = flags;
      params.scale = scale;
      params.value_scale = value_scale;
      params.op = static_cast<uint8_t>(op);
      params.column = column;
      params.step = step;
      params.weight_decay = weight_decay;
      return params;
    }
  };
  wire::FramePtr Rows(uint32_t rank, wire::FrameType type, TableId table, Round round, std::vector<Row> rows,
                      RoundOptions options) {
    wire::DataParts parts = Parts(rank, type, table);
    parts.round = round;
    std::vector<wire::SlotEntry> entries;
    std::vector<uint64_t> keys;
    parts.owned = pool.Get(rows.size() * sizeof(float));
    for (size_t i = 0; i < rows.size(); ++i) {
      entries.push_back({rows[i].slot, 1, rows[i].number});
      keys.push_back(KeyIn(rows[i].slot));
      std::memcpy(parts.owned.data() + i * sizeof(float), &rows[i].value, sizeof(float));
    }
    std::vector<std::byte> bitmap((kSlots + 7) / 8);
    if (options.done) {
      for (uint32_t slot : *options.done) bitmap[slot / 8] |= std::byte{1} << (slot % 8);
      parts.done_bitmap = bitmap;
      if (type == wire::FrameType::kContribute) parts.flags |= wire::kFlagDone;
    }
    if (options.pull_after) parts.flags |= wire::kFlagPullAfter;
    const wire::PushParams params = options.params();
    parts.params = &params;
    parts.entries = entries;
    parts.keys = keys;
    if (type == wire::FrameType::kDone) parts.owned = {};
    return wire::EncodeData(std::move(parts), pool);
  }
  wire::FramePtr Push(uint32_t rank, TableId table, std::vector<Row> rows) {
    return Rows(rank, wire::FrameType::kPush, table, Round{0}, std::move(rows), {});
  }
  wire::FramePtr Contribute(uint32_t rank, TableId table, uint64_t round, std::vector<Row> rows,
                            RoundOptions options) {
    return Rows(rank, wire::FrameType::kContribute, table, Round{round}, std::move(rows), options);
  }
  // A contribution to one slot with the mark that names it.
  wire::FramePtr Give(uint32_t rank, TableId table, uint64_t round, uint32_t slot, float value,
                      double weight = 1, float lr = 1) {
    return Contribute(rank, table, round, {{slot, value}},
                      {.done = std::vector<uint32_t>{slot}, .weight = weight, .lr = lr});
  }
  wire::FramePtr Done(uint32_t rank, TableId table, uint64_t round, double weight = 1, float lr = 1) {
    return Rows(rank, wire::FrameType::kDone, table, Round{round}, {},
                {.done = std::vector<uint32_t>{}, .weight = weight, .lr = lr});
  }
  wire::FramePtr Pull(uint32_t rank, TableId table, std::vector<uint32_t> slots,
                      std::optional<uint64_t> sync_round = {}, uint8_t column = 0) {
    wire::DataParts parts = Parts(rank, wire::FrameType::kPull, table);
    if (sync_round) {
      parts.flags = wire::kFlagSyncPull;
      parts.round = Round{*sync_round};
    }
    std::vector<wire::SlotEntry> entries;
    std::vector<uint64_t> keys;
    for (uint32_t slot : slots) {
      entries.push_back({slot, column == kKeyColumn ? 0u : 1u, column});
      if (column != kKeyColumn) keys.push_back(KeyIn(slot));
    }
    parts.entries = entries;
    parts.keys = keys;
    return wire::EncodeData(std::move(parts), pool);
  }

  // Answers. Each takes the oldest one that this worker's connection got and has not been looked at.
  std::optional<wire::InFrame> Next(uint32_t rank) { return NextOn(conns[rank]); }
  std::optional<wire::InFrame> NextOn(ConnId conn) {
    auto& frames = net.sent[conn];
    size_t& at = looked[conn];
    if (at >= frames.size()) return {};
    wire::InFrame frame;
    frame.header = frames[at].header;
    frame.storage = std::move(frames[at].storage);
    ++at;
    return frame;
  }
  void SkipAnswers() {
    for (auto& [conn, frames] : net.sent) looked[conn] = frames.size();
  }
  // "" where nothing came; "applied", "closed", "values 1 2", "report slot=sum_squares …" with "!"
  // where it is not finite, or "slot:code@number … text"; "all joined, " before it.
  std::string Answer(uint32_t rank) { return Describe(Next(rank)); }
  // The same without what is only said while the answer waits.
  std::string AnswerAtLast(uint32_t rank) {
    std::string answer = Answer(rank);
    while (answer.starts_with("held for ")) answer = Answer(rank);
    return answer;
  }
  static std::string Describe(const std::optional<wire::InFrame>& frame) {
    if (!frame) return "";
    const wire::FrameHeader& header = frame->header;
    switch (header.type) {
      case wire::FrameType::kPushReply: {
        auto reply = wire::DecodePushReply(header, frame->body());
        return reply->entries.empty() ? "applied" : Problems(*reply);
      }
      case wire::FrameType::kError: {
        auto error = wire::DecodeError(header, frame->body());
        return "error " + std::string(CodeName(error->code)) + ": " + std::string(error->text);
      }
      case wire::FrameType::kRoundReply:
      case wire::FrameType::kPullReply: {
        wire::PushReplyView refusal;
        const std::string joined = (header.flags & wire::kFlagAllJoined) != 0 ? "all joined, " : "";
        if (wire::DecodeRoundRefusal(header, frame->body(), &refusal)) return joined + Problems(refusal);
        auto values = wire::DecodeValues(header, frame->body());
        if ((header.flags & wire::kFlagReport) != 0) return joined + Reports(*values);
        if (values->entries.empty()) return joined + "closed";
        std::string text = joined + "values";
        for (size_t i = 0; i + 4 <= values->values.size(); i += 4) {
          float value;
          std::memcpy(&value, values->values.data() + i, 4);
          text += " " + Short(value);
        }
        return text;
      }
      default: return Words(*wire::DecodeControl(header, frame->body()));
    }
  }
  static std::string Reports(const wire::ValuesView& values) {
    std::string text = "report";
    EXPECT_EQ(values.values.size(), values.entries.size() * sizeof(wire::SlotReport));
    for (size_t i = 0; i < values.entries.size(); ++i) {
      wire::SlotReport report;
      std::memcpy(&report, values.values.data() + i * sizeof(report), sizeof(report));
      EXPECT_EQ(values.entries[i].count, 4u);
      text += " " + std::to_string(values.entries[i].slot) + "=" + Short(report.sum_squares) +
              (report.not_finite != 0 ? "!" : "");
    }
    return text;
  }
  static std::string Words(const wire::ControlMessage& message) {
    if (auto* refusal = std::get_if<wire::Refusal>(&message))
      return "refusal " + std::string(CodeName(refusal->code)) + ": " + refusal->text;
    if (auto* waiting = std::get_if<wire::StillWaiting>(&message)) {
      std::string text = "waiting in round " + std::to_string(waiting->round.value) + " for";
      for (uint32_t rank : waiting->missing_ranks) text += " " + std::to_string(rank);
      return waiting->waits_for.empty() ? text : "held for " + waiting->waits_for;
    }
    return wire::Name(message);
  }
  static std::string Problems(const wire::PushReplyView& reply) {
    std::string text;
    for (const wire::SlotEntry& entry : reply.entries) {
      text += std::to_string(entry.slot) + ":" + std::string(CodeName(static_cast<Code>(entry.count))) + "@" +
              std::to_string(entry.number) + " ";
    }
    return text + std::string(reply.text);
  }
  static std::string Short(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%g", value);
    return text;
  }

  // The stored value of a slot's row; nothing where it is not stored.
  std::optional<float> Stored(TableId table, uint32_t slot) const {
    std::optional<float> found;
    shard->ForEachRow(table, SlotId{slot}, [&](RowKey key, std::span<const std::byte> row) {
      if (key != KeyIn(slot)) return;
      found.emplace();
      std::memcpy(&*found, row.data(), sizeof(float));
    });
    return found;
  }
  uint64_t Open(TableId table, uint32_t slot) const { return shard->OpenRound(table, SlotId{slot}).value; }

  BufferPool pool;
  RecordingNetwork net;
  const Incarnation server;
  RecordingObserver seen;
  std::unique_ptr<Shard> shard;
  wire::ClusterState state;
  std::map<uint32_t, Incarnation> incarnations;  // by rank
  std::map<uint32_t, ConnId> conns;
  std::map<ConnId, size_t> looked;
  uint64_t next_conn = 0, next_request = 0;
  int64_t now = 0;
};

}  // namespace cairn::server

// Control messages and states: every field comes through, and nothing that is not well formed does.
#include "wire/control.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <tuple>

#include "base/random.h"
#include "wire/body_layout.h"
#include "wire/state_codec.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

// All fields of each message, for comparison.
auto Fields(const Register& m) {
  return std::tie(m.protocol_min, m.protocol_max, m.cluster_id, m.role, m.uid, m.endpoint, m.threads,
                  m.wanted_rank);
}
auto Fields(const Registered& m) {
  return std::tie(m.uid, m.cluster_id, m.term, m.incarnation, m.rank, m.barrier_base, m.heartbeat_ms);
}
auto Fields(const Heartbeat& m) {
  const NodeStats& s = m.stats;
  return std::tie(m.incarnation, m.uid, m.version, m.barrier_count, m.hold_view, m.open_rounds,
                  m.end_confirmed, s.pushes, s.pulls, s.rounds, s.bytes_in, s.bytes_out, s.rows,
                  s.memory_bytes, s.connections, s.round_trips, s.replicated_bytes, s.unconfirmed_bytes,
                  s.dense_bytes, s.memory.kind, s.memory.bytes, s.memory.group, m.hold_version, m.leaving,
                  m.news, m.loads, m.hot_rows, m.sampled, m.stalled, m.staleness);
}
auto Fields(const HeartbeatReply& m) {
  return std::tie(m.term, m.version, m.barrier_open, m.awaiting, m.blocked_slots, m.heartbeat_ms);
}
auto Fields(const StateMessage& m) { return std::tie(m.state); }
auto Fields(const CreateTable& m) { return std::tie(m.request, m.incarnation, m.spec); }
auto Fields(const DropTable& m) { return std::tie(m.request, m.incarnation, m.name); }
auto Fields(const TableReply& m) { return std::tie(m.request, m.code, m.text, m.table, m.version); }
auto Fields(const Leave& m) { return std::tie(m.incarnation); }
auto Fields(const LeaveReply& m) { return std::tie(m.incarnation); }
auto Fields(const GiveUp& m) { return std::tie(m.rank); }
auto Fields(const ProcessEnded& m) { return std::tie(m.uid, m.out_of_memory); }
auto Fields(const AbortJob& m) { return std::tie(m.reason); }
auto Fields(const StatusRequest& m) { return std::tie(m.request); }
auto Fields(const StatusReply& m) { return std::tie(m.request, m.json); }
auto Fields(const Hello& m) {
  return std::tie(m.protocol_min, m.protocol_max, m.cluster_id, m.incarnation, m.server_incarnation,
                  m.thread);
}
auto Fields(const HelloReply& m) { return std::tie(m.protocol, m.version); }
auto Fields(const Refusal& m) { return std::tie(m.request, m.code, m.text); }
auto Fields(const StillWaiting& m) {
  return std::tie(m.request, m.table, m.round, m.missing_ranks, m.waits_for);
}
auto Fields(const Blocked& m) { return std::tie(m.incarnation, m.serial, m.barrier, m.ranks, m.what); }
auto Fields(const Deadlock& m) { return std::tie(m.serial, m.text); }
auto Fields(const Scale& m) { return std::tie(m.request, m.servers); }
auto Fields(const ReplicaHello& m) {
  return std::tie(m.protocol_min, m.protocol_max, m.cluster_id, m.from_server, m.from_thread,
                  m.from_incarnation, m.to_incarnation, m.to_thread);
}
auto Fields(const StateDelta& m) {
  return std::tie(m.base, m.changed, m.slot_ids, m.servers_gone, m.workers_gone, m.tables_gone);
}
auto Fields(const ReplicaHelloReply& m) { return std::tie(m.protocol, m.received); }
auto Fields(const StateAt& m) { return std::tie(m.version); }
auto Fields(const CreateTables& m) { return std::tie(m.request, m.incarnation, m.specs); }

bool Same(const ControlMessage& a, const ControlMessage& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& m) { return Fields(m) == Fields(std::get<std::decay_t<decltype(m)>>(b)); }, a);
}

class Control : public ::testing::Test {
 protected:
  InFrame Send(const ControlMessage& message) {
    Result<InFrame> in = Parse(Flatten(*EncodeControl(message, pool_), pool_).bytes(), kMaxBodyBytes, pool_);
    EXPECT_TRUE(in.ok()) << in.status().ToString();
    return std::move(in).value();
  }
  // A control frame with a hand-made body.
  Result<ControlMessage> DecodeRaw(const flatbuffers::FlatBufferBuilder& b) {
    FrameHeader header;
    header.body_bytes = b.GetSize();
    Buffer body = pool_.Get(b.GetSize());
    std::memcpy(body.data(), b.GetBufferPointer(), b.GetSize());
    return DecodeControl(header, body.bytes());
  }
  template <class T>
  Result<ControlMessage> DecodeRaw(flatbuffers::FlatBufferBuilder& b, fb::Message type,
                                   flatbuffers::Offset<T> m) {
    b.Finish(fb::CreateControl(b, type, m.Union()), kControlIdentifier);
    return DecodeRaw(b);
  }
  BufferPool pool_;
};

TEST_F(Control, EveryMessageComesThroughWithEveryField) {
  const std::vector<ControlMessage> all = SampleControl();
  ASSERT_EQ(all.size(), std::variant_size_v<ControlMessage>);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].index(), i);
    const InFrame in = Send(all[i]);
    const Result<ControlMessage> out = DecodeControl(in.header, in.body());
    ASSERT_TRUE(out.ok()) << Name(all[i]) << ": " << out.status().ToString();
    EXPECT_TRUE(Same(all[i], *out)) << Name(all[i]);
  }
}

TEST_F(Control, WhatServersSayOfMemoryAndOfHeldAnswersComesThrough) {
  const std::vector<ControlMessage> messages = {SampleMemoryHeartbeat(), SampleStalenessHeartbeat(),
                                                SampleHeldAnswer()};
  for (const ControlMessage& message : messages) {
    const InFrame in = Send(message);
    const Result<ControlMessage> out = DecodeControl(in.header, in.body());
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    EXPECT_TRUE(Same(message, *out)) << Name(message);
  }
  flatbuffers::FlatBufferBuilder b;
  fb::NodeStatsBuilder stats(b);
  stats.add_memory_kind(4);
  const auto made = stats.Finish();
  fb::HeartbeatBuilder heartbeat(b);
  heartbeat.add_stats(made);
  EXPECT_FALSE(DecodeRaw(b, fb::Message::Heartbeat, heartbeat.Finish()).ok()) << "a kind that nobody knows";
}

TEST_F(Control, TheStorageOfATableComesThrough) {
  for (const Storage storage : {Storage::kFull, Storage::kBfloat16, Storage::kFloat16}) {
    CreateTable asked{7, Incarnation{3}, {}};
    asked.spec.name = "emb";
    asked.spec.storage = storage;
    const InFrame in = Send(asked);
    const Result<ControlMessage> out = DecodeControl(in.header, in.body());
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    EXPECT_TRUE(Same(asked, *out));
  }
  flatbuffers::FlatBufferBuilder b;
  fb::TableSpecBuilder spec(b);
  spec.add_storage(3);
  const auto made = spec.Finish();
  EXPECT_FALSE(DecodeRaw(b, fb::Message::CreateTable, fb::CreateCreateTable(b, 1, 1, made)).ok());
}

TEST_F(Control, DefaultMessagesComeThroughToo) {
  const auto check = [this](const ControlMessage& m) {
    const InFrame in = Send(m);
    const Result<ControlMessage> out = DecodeControl(in.header, in.body());
    ASSERT_TRUE(out.ok()) << Name(m) << ": " << out.status().ToString();
    EXPECT_TRUE(Same(m, *out)) << Name(m);
  };
  check(Register{}), check(Registered{}), check(Heartbeat{}), check(HeartbeatReply{}), check(StateMessage{});
  check(CreateTable{}), check(DropTable{}), check(TableReply{}), check(Leave{}), check(LeaveReply{});
  check(GiveUp{}), check(AbortJob{}), check(StatusRequest{}), check(StatusReply{}), check(Hello{});
  check(HelloReply{}), check(Refusal{}), check(StillWaiting{}), check(Scale{}), check(ReplicaHello{});
  check(ReplicaHelloReply{}), check(StateDelta{}), check(ProcessEnded{}), check(StateAt{});
  check(Registered{.heartbeat_ms = 200}), check(HeartbeatReply{.heartbeat_ms = 200});
}

TEST_F(Control, NamesAreThoseOfTheTypes) {
  EXPECT_STREQ(Name(Register{}), "Register");
  EXPECT_STREQ(Name(StillWaiting{}), "StillWaiting");
  EXPECT_STREQ(Name(ReplicaHelloReply{}), "ReplicaHelloReply");
}

TEST_F(Control, TruncatedAtAnyLengthIsRefused) {
  for (const ControlMessage& message : SampleControl()) {
    InFrame in = Send(message);
    for (size_t n = 0, full = in.storage.size(); n < full; ++n) {
      in.storage.Resize(n);
      in.header.body_bytes = static_cast<uint32_t>(n);
      // A FlatBuffer's last bytes may be padding; what decodes must be the message.
      const Result<ControlMessage> out = DecodeControl(in.header, in.body());
      if (out.ok()) {
        EXPECT_TRUE(Same(message, *out)) << Name(message) << " cut to " << n;
        EXPECT_GE(n + 8, full);
      }
    }
  }
}

// The checksum does not stand between a hostile peer and the decoder: it must hold on its own.
TEST_F(Control, DamagedBytesNeverCrash) {
  const uint64_t seed = 20240601;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const ControlMessage& message : SampleControl()) {
    InFrame in = Send(message);
    for (int i = 0; i < 2000; ++i) {
      const size_t at = random.Below(in.storage.size());
      const std::byte before = in.storage.data()[at];
      in.storage.data()[at] = static_cast<std::byte>(random.Next());
      const Result<ControlMessage> out = DecodeControl(in.header, in.body());
      if (out.ok()) (void)EncodeControl(*out, pool_);
      if (random.Chance(0.7)) in.storage.data()[at] = before;
    }
  }
}

TEST_F(Control, UnknownMessageAndMissingTableAreRefused) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(fb::CreateControl(b), kControlIdentifier);
  EXPECT_FALSE(DecodeRaw(b).ok());
  flatbuffers::FlatBufferBuilder tag_only;
  tag_only.Finish(fb::CreateControl(tag_only, fb::Message::Leave, 0), kControlIdentifier);
  EXPECT_FALSE(DecodeRaw(tag_only).ok());
  flatbuffers::FlatBufferBuilder newer;
  const auto unknown = static_cast<fb::Message>(static_cast<int>(fb::Message::MAX) + 1);
  EXPECT_FALSE(DecodeRaw(newer, unknown, fb::CreateLeave(newer, 1)).ok());
  flatbuffers::FlatBufferBuilder state;  // a state is not a message
  state.Finish(PackState(state, SampleState()), kStateIdentifier);
  EXPECT_FALSE(DecodeRaw(state).ok());
}

TEST_F(Control, RequiredPartsAndKnownValues) {
  {
    flatbuffers::FlatBufferBuilder b;
    const auto start = b.StartTable();
    EXPECT_FALSE(
        DecodeRaw(b, fb::Message::StateMessage, flatbuffers::Offset<fb::StateMessage>(b.EndTable(start)))
            .ok());
  }
  {
    flatbuffers::FlatBufferBuilder b;
    EXPECT_FALSE(DecodeRaw(b, fb::Message::Register, fb::CreateRegister(b, 1, 1, 0, 4)).ok());
  }
  for (const uint8_t code : {uint8_t{16}, uint8_t{255}}) {
    flatbuffers::FlatBufferBuilder b, c;
    EXPECT_FALSE(DecodeRaw(b, fb::Message::Refusal, fb::CreateRefusal(b, 1, code)).ok());
    EXPECT_FALSE(DecodeRaw(c, fb::Message::TableReply, fb::CreateTableReply(c, 1, code)).ok());
  }
  for (int field = 0; field < 6; ++field) {
    flatbuffers::FlatBufferBuilder b;
    uint8_t v[6] = {};
    v[field] = 11;  // beyond every one of these enums
    const auto spec = fb::CreateTableSpec(b, 0, v[0], v[1], v[2], v[3], v[4], false, 1, 1, v[5]);
    EXPECT_FALSE(DecodeRaw(b, fb::Message::CreateTable, fb::CreateCreateTable(b, 1, 1, spec)).ok()) << field;
  }
}

TEST_F(Control, NewsOfAnUnknownKindAreRefused) {
  for (const int number : {0, 1, 6, 7, 255}) {
    const auto kind = static_cast<uint8_t>(number);
    flatbuffers::FlatBufferBuilder b;
    const fb::SlotNews one(3, 10, 2, 1, kind);
    const auto news = b.CreateVectorOfStructs(&one, 1);
    fb::HeartbeatBuilder heartbeat(b);
    heartbeat.add_news(news);
    EXPECT_EQ(DecodeRaw(b, fb::Message::Heartbeat, heartbeat.Finish()).ok(), kind >= 1 && kind <= 6) << +kind;
  }
}

// Many offsets to one string or table: small on the wire, huge when unfolded.
TEST_F(Control, SharedPartsDoNotUnfold) {
  {
    flatbuffers::FlatBufferBuilder b;
    const auto host = b.CreateString(std::string(250, 'h'));
    const auto server = fb::CreateServerInfo(b, 0, 1, host, 1, 1);
    const auto servers = b.CreateVector(std::vector<flatbuffers::Offset<fb::ServerInfo>>(1000, server));
    fb::ClusterStateBuilder state(b);
    state.add_servers(servers);
    EXPECT_FALSE(DecodeRaw(b, fb::Message::StateMessage, fb::CreateStateMessage(b, state.Finish())).ok());
  }
  {
    flatbuffers::FlatBufferBuilder b;
    const std::vector<fb::TableRound> rounds(4000, fb::TableRound(1, 2));
    const auto starts = b.CreateVectorOfStructs(rounds);
    const auto view = fb::CreateView(b, 1, starts);
    const auto views = b.CreateVector(std::vector<flatbuffers::Offset<fb::View>>(1000, view));
    fb::ClusterStateBuilder state(b);
    state.add_views(views);
    b.Finish(state.Finish(), kStateIdentifier);
    const auto* first = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
    EXPECT_FALSE(DecodeState({first, b.GetSize()}).ok());
  }
}

// FlatBuffers verifies the place of a vector's length, not of the structs behind it.
TEST_F(Control, StructsOutOfLineAreRefused) {
  for (const bool shifted : {false, true}) {
    flatbuffers::FlatBufferBuilder b;
    if (shifted) b.PushElement(uint32_t{0});
    b.StartVector(8, 4);  // two structs of 16 bytes, written as numbers of 4
    for (uint32_t i = 0; i < 8; ++i) b.PushElement(i);
    const flatbuffers::Offset<flatbuffers::Vector<const fb::TableRound*>> r(b.EndVector(2));
    const auto view = fb::CreateView(b, 1, r);
    const auto views = b.CreateVector(&view, 1);
    fb::ClusterStateBuilder state(b);
    state.add_views(views);
    b.Finish(state.Finish(), kStateIdentifier);
    std::vector<uint64_t> aligned(b.GetSize() / 8 + 1);
    std::memcpy(aligned.data(), b.GetBufferPointer(), b.GetSize());
    EXPECT_EQ(DecodeState(std::as_bytes(std::span(aligned)).first(b.GetSize())).ok(), !shifted);
  }
}

TEST_F(Control, NumbersOutOfLineAreRefused) {
  alignas(8) const uint32_t words[] = {0, 2, 1, 0, 2, 0, 0, 0};
  const auto at = [&](size_t word) -> const auto& {
    return *reinterpret_cast<const flatbuffers::Vector<uint64_t>*>(words + word);
  };
  Budget budget(64);
  ASSERT_TRUE(budget.TakeNumbers(at(1)));  // its length is the second word, its numbers begin at the third
  EXPECT_EQ(at(1).Get(1), 2u);
  EXPECT_FALSE(budget.TakeNumbers(at(4)));
  EXPECT_TRUE(budget.spent());
}

TEST_F(Control, WhatGoesIntoTheStateIsBounded) {
  const auto accepted = [this](const ControlMessage& m) {
    const InFrame in = Send(m);
    return DecodeControl(in.header, in.body()).ok();
  };
  Register r;
  r.endpoint.host = r.cluster_id = std::string(255, 'h');
  EXPECT_TRUE(accepted(r));
  r.endpoint.host += 'h';
  EXPECT_FALSE(accepted(r));
  r.endpoint.host.clear(), r.cluster_id += 'c';
  EXPECT_FALSE(accepted(r));
  CreateTable create;
  create.spec.name = std::string(1024, 'n');
  EXPECT_TRUE(accepted(create));
  create.spec.name += 'n';
  EXPECT_FALSE(accepted(create));
  const InFrame in = Send(AbortJob{std::string(100000, 'r')});
  EXPECT_EQ(std::get<AbortJob>(*DecodeControl(in.header, in.body())).reason, std::string(4096, 'r'));
  StateMessage state{SampleState()};
  state.state.workers[0].endpoint.host = std::string(256, 'h');
  EXPECT_FALSE(accepted(state));
}

TEST_F(Control, LargeClustersFit) {
  ClusterState state = SampleState();
  state.servers.clear(), state.workers.clear(), state.slots.clear();
  for (uint32_t i = 0; i < 1000; ++i)
    state.servers.push_back({i, Incarnation{i + 1}, {"server.example.org", 7000}, 16});
  for (uint32_t i = 0; i < 10000; ++i) {
    state.workers.push_back({Rank{i}, Incarnation{i + 1001}, ViewNumber{1}, {"worker.example.org", 0}});
  }
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    state.slots.push_back(
        {static_cast<uint16_t>(i % 1000), static_cast<uint16_t>(i % 16), 1, StateVersion{1}});
  }
  const InFrame in = Send(StateMessage{state});
  const Result<ControlMessage> out = DecodeControl(in.header, in.body());
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_EQ(std::get<StateMessage>(*out).state, state);
}

TEST(State, RoundTripsExactly) {
  for (const ClusterState& state : {SampleState(), ClusterState{}}) {
    const std::vector<std::byte> bytes = EncodeState(state);
    const Result<ClusterState> out = DecodeState(bytes);
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    EXPECT_EQ(*out, state);
    EXPECT_EQ(EncodeState(*out), bytes);
  }
}

TEST(State, HowATableTravelsIsPartOfItsSpec) {
  ClusterState state = SampleState();
  state.tables[0].spec.wire = WireFormat::kTopK;
  state.tables[0].spec.wire_topk = 0.01f;
  const Result<ClusterState> back = DecodeState(EncodeState(state));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->tables[0].spec, state.tables[0].spec);
  state.tables[0].spec.wire = static_cast<WireFormat>(5);
  EXPECT_FALSE(DecodeState(EncodeState(state)).ok());
}

TEST(State, DecodesWhereverItLies) {
  const std::vector<std::byte> bytes = EncodeState(SampleState());
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    const Result<ClusterState> out = DecodeState(std::span(moved).subspan(shift));
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(*out, SampleState());
  }
}

TEST(State, WhatAHolderReliesOnIsChecked) {
  const auto refused = [](const std::function<void(ClusterState&)>& change) {
    ClusterState state = SampleState();
    change(state);
    return !DecodeState(EncodeState(state)).ok();
  };
  EXPECT_FALSE(refused([](ClusterState&) {}));
  EXPECT_TRUE(refused([](ClusterState& s) { s.slots[1].server = 2; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.slots[2].thread = 2; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.slots.clear(); }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.servers[1].index = 0; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.servers[1].index = 0x80000000; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.servers[2].index = 5; })) << "slot 0's backup is gone";
  EXPECT_TRUE(refused([](ClusterState& s) { s.workers[1].rank = Rank{0}; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.phase = static_cast<Phase>(4); }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.slots.resize(kMaxSlots + 1); }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.tables[0].spec.kind = static_cast<TableKind>(2); }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.tables[0].spec.segments = {10, 10, 1001}; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.tables[0].spec.segments = {0, 1001}; }));
  EXPECT_TRUE(refused([](ClusterState& s) { s.tables[0].spec.segments = {10, 1000}; }));
  EXPECT_FALSE(refused([](ClusterState& s) { s.tables[0].spec.segments = {}; }));
  // Before and after the job, slots may lack their owners.
  EXPECT_FALSE(refused([](ClusterState& s) { s.phase = Phase::kFailed, s.servers.clear(); }));
  EXPECT_FALSE(refused([](ClusterState& s) { s.phase = Phase::kForming, s.slots.clear(); }));
}

TEST(State, BackupsAreWhereAHolderExpectsThem) {
  const auto refused = [](const std::function<void(std::vector<SlotOwner>&)>& change) {
    ClusterState state = SampleState();
    change(state.slots);
    return !DecodeState(EncodeState(state)).ok();
  };
  using Slots = std::vector<SlotOwner>;
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups[1].server = 0; })) << "on the primary's server";
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups[1].server = 4; })) << "two on one server";
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups[1].server = 2; })) << "no such server";
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups[1].server = kNoServer; }));
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups[0].thread = 3; })) << "no such thread";
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups[0].in_sync = false; })) << "an heir has everything";
  EXPECT_TRUE(refused([](Slots& s) { s[0].heir = 1; })) << "a backup that is not in sync";
  EXPECT_TRUE(refused([](Slots& s) { s[0].heir = 0; })) << "the primary itself";
  EXPECT_TRUE(refused([](Slots& s) { s[1].heir = 4; })) << "no backup at all";
  EXPECT_TRUE(refused([](Slots& s) { s[0].backups.resize(kMaxBackups + 1); }));
  EXPECT_FALSE(refused([](Slots& s) { s[0].heir = kNoServer, s[0].backups.clear(); }));
}

TEST(State, BackupsAndHeirsOfUnknownSlotsAreRefused) {
  for (const uint32_t slot : {0u, 2u, 3u, 0xFFFFFFFFu}) {
    for (const bool heir : {false, true}) {
      flatbuffers::FlatBufferBuilder b;
      const std::vector<fb::SlotOwner> three(3, fb::SlotOwner(1, 1, 0, 0));
      const fb::Backup backup(1, slot, 1, 0, true);
      const fb::Heir next(slot, 1);
      const auto slots = b.CreateVectorOfStructs(three);
      const auto backups = b.CreateVectorOfStructs(&backup, heir ? 0 : 1);
      const auto heirs = b.CreateVectorOfStructs(&next, heir ? 1 : 0);
      fb::ClusterStateBuilder state(b);
      state.add_slots(slots), state.add_backups(backups), state.add_heirs(heirs);
      b.Finish(state.Finish(), kStateIdentifier);
      const auto* first = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
      EXPECT_EQ(DecodeState({first, b.GetSize()}).ok(), slot < 3) << slot << (heir ? " heir" : " backup");
    }
  }
}

// A state as it was written before there were backups.
TEST(State, WithoutTheNewFieldsASlotHasOneOwner) {
  flatbuffers::FlatBufferBuilder b;
  const fb::SlotOwner owner(7, 5, 0, 1);
  const auto slots = b.CreateVectorOfStructs(&owner, 1);
  fb::ClusterStateBuilder state(b);
  state.add_slots(slots);
  b.Finish(state.Finish(), kStateIdentifier);
  const auto* first = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  const Result<ClusterState> out = DecodeState({first, b.GetSize()});
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_EQ(out->slots, (std::vector<SlotOwner>{{0, 1, 7, StateVersion{5}}}));
  EXPECT_EQ(out->replicas, 1u);
  EXPECT_EQ(out->min_in_sync, 1u);
  EXPECT_EQ(out->failovers, 0u);
}

TEST(State, EmptyAndForeignBytesAreRefused) {
  EXPECT_FALSE(DecodeState({}).ok());
  for (size_t n : {1, 4, 8, 64, 4096}) EXPECT_FALSE(DecodeState(std::vector<std::byte>(n)).ok()) << n;
}

}  // namespace
}  // namespace cairn::wire

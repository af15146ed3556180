// One of everything that travels: the same messages for unit tests, golden files and fuzz seeds.
// Every field has a value of its own, so that a forgotten or swapped one shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "wire/cluster_state.h"
#include "wire/coding.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/replica.h"

namespace cairn::wire {

inline TableSpec SampleSpec() {
  TableSpec spec;
  spec.name = "user_emb";
  spec.kind = TableKind::kSparse;
  spec.element = ElementType::kInt64;
  spec.mode = Mode::kSync;
  spec.optimizer = OptimizerKind::kSgd;
  spec.non_finite = NonFinitePolicy::kAllow;
  spec.deterministic = true;
  spec.size = 1001;
  spec.dim = 16;
  spec.init = Init::Normal(0.5f, 0.25f, 0x1122334455667788);
  spec.init.stream = 0x99AABBCCDDEEFF01;
  spec.optimizer_flags = kWithMomentum | kNesterov;
  spec.initial_state = 0.125f;
  spec.segments = {10, 1000, 1001};
  return spec;
}

inline ClusterState SampleState() {
  ClusterState state;
  state.cluster_id = "c-7f3a";
  state.term = Term{3};
  state.version = StateVersion{41};
  state.phase = Phase::kRunning;
  state.failure = "none so far";
  state.expected_servers = 2;
  state.expected_workers = 4;
  state.servers = {{0, Incarnation{1}, {"10.0.0.1", 7001}, 2},
                   {1, Incarnation{2}, {"10.0.0.2", 7002}, 1},
                   {4, Incarnation{10}, {"10.0.0.5", 7003}, 3, true}};
  state.slots = {
      {0, 0, 1, StateVersion{5}, 4, {{4, 2, true, StateVersion{8}}, {1, 0, false, StateVersion{9}}}},
      {1, 0, 2, StateVersion{6}},
      {0, 1, 3, StateVersion{7}, kNoServer, {{1, 0, true, StateVersion{10}}}}};
  state.workers = {{Rank{0}, Incarnation{3}, ViewNumber{1}, {"10.0.0.3", 0}},
                   {Rank{2}, Incarnation{9}, ViewNumber{2}, {"10.0.0.4", 12}},
                   {Rank{5}, Incarnation{11}, ViewNumber{0}, {"", 0}}};
  state.next_incarnation = Incarnation{12};
  state.view = ViewNumber{2};
  state.pending_view = ViewNumber{3};
  state.views = {{ViewNumber{1}, {}}, {ViewNumber{2}, {{TableId{1}, Round{17}}, {TableId{4}, Round{90}}}}};
  TableSpec dense;
  dense.name = "dense";
  dense.size = 61706;
  state.tables = {{TableId{1}, dense, ViewNumber{1}}, {TableId{4}, SampleSpec(), ViewNumber{2}}};
  state.next_table = TableId{6};
  state.done_ranks = {1, 3};
  state.replicas = 3;
  state.min_in_sync = 2;
  state.failovers = 13;
  return state;
}

// With what servers say of their memory.
inline Heartbeat SampleMemoryHeartbeat() {
  Heartbeat heartbeat;
  heartbeat.incarnation = Incarnation{12};
  heartbeat.uid = 77;
  heartbeat.stats.memory_bytes = 7;
  heartbeat.stats.dense_bytes = 5;
  heartbeat.stats.memory = {MemoryKind::kControlGroup, uint64_t{3} << 30, 0xABCDEF};
  return heartbeat;
}

// Of a worker that reads bounded tables.
inline Heartbeat SampleStalenessHeartbeat() {
  Heartbeat heartbeat;
  heartbeat.incarnation = Incarnation{13};
  heartbeat.uid = 78;
  heartbeat.staleness = {900, 80, 7, 1};
  return heartbeat;
}

inline StillWaiting SampleHeldAnswer() {
  return {105, TableId{4}, Round{0}, {}, "server 1 thread 0 to confirm"};
}

// In the order of the variant.
inline std::vector<ControlMessage> SampleControl() {
  std::vector<ControlMessage> all;
  all.push_back(Register{1, 2, "c-7f3a", Role::kServer, 77, {"10.0.0.9", 7009}, 8, 3});
  all.push_back(Registered{77, "c-7f3a", Term{3}, Incarnation{12}, 5, 6});
  all.push_back(Heartbeat{
      Incarnation{12},
      77,
      StateVersion{41},
      9,
      ViewNumber{3},
      {{TableId{1}, Round{20}}, {TableId{4}, Round{91}}},
      true,
      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
      StateVersion{40},
      true,
      {{2, SlotNews::kSlow, 1, 3, StateVersion{10}}, {0, SlotNews::kHandedOver, 4, 1, StateVersion{0}}},
      {{0, 4096, 21, 5000, 6000}, {2, uint64_t{1} << 40, 22, 0, 7000}},
      {{TableId{4}, uint64_t{1} << 60, 300}, {TableId{4}, 17, 20}},
      {{TableId{4}, 2000}},
      {{TableId{4}, Round{91}, 12000, 40, {0, 2}}}});
  all.push_back(HeartbeatReply{Term{3}, StateVersion{42}, 8, "rank 5 has not reached barrier 9", 3});
  all.push_back(StateMessage{SampleState()});
  all.push_back(CreateTable{101, Incarnation{12}, SampleSpec()});
  all.push_back(DropTable{102, Incarnation{12}, "user_emb"});
  all.push_back(TableReply{101, Code::kAlreadyExists, "dim is 16, not 32", TableId{4}, StateVersion{42}});
  all.push_back(Leave{Incarnation{12}});
  all.push_back(LeaveReply{Incarnation{12}});
  all.push_back(GiveUp{5});
  all.push_back(AbortJob{"rank 5 exited with 139"});
  all.push_back(StatusRequest{103});
  all.push_back(StatusReply{103, "{\"phase\":\"running\"}"});
  all.push_back(Hello{1, 2, "c-7f3a", Incarnation{12}, Incarnation{2}, 1});
  all.push_back(HelloReply{1, StateVersion{41}});
  all.push_back(Refusal{104, Code::kRetired, "incarnation 12 was declared dead"});
  all.push_back(StillWaiting{105, TableId{4}, Round{91}, {0, 2}, ""});
  all.push_back(Scale{106, 5});
  all.push_back(ReplicaHello{1, 2, "c-7f3a", 4, 2, Incarnation{10}, Incarnation{2}, 1});
  all.push_back(ReplicaHelloReply{1, 1234567890123});
  ClusterState part = SampleState();
  part.slots.resize(1);
  all.push_back(StateDelta{StateVersion{41}, part, {2}, {3}, {1, 4}, {2}});
  all.push_back(ProcessEnded{77});
  all.push_back(Blocked{Incarnation{12}, 0xFEDCBA9876543210, 9, {0, 2}, "round 91 of table \"dense\""});
  all.push_back(Deadlock{0xFEDCBA9876543210, "rank 0 is in a barrier"});
  all.push_back(CreateTables{107, Incarnation{12}, {SampleSpec(), TableSpec{.name = "w", .size = 10}}});
  all.push_back(StateAt{StateVersion{88}});
  return all;
}

struct NamedFrame {
  std::string name;
  FramePtr frame;
};

// `count` floats 1, 2, 3 … as a pool buffer.
inline Buffer SampleFloats(size_t count, BufferPool& pool) {
  Buffer out = pool.Get(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(i + 1);
    std::memcpy(out.data() + i * sizeof(float), &value, sizeof(value));
  }
  return out;
}

inline DataParts SampleParts(FrameType type) {
  DataParts parts;
  parts.type = type;
  parts.request_id = 0x0102030405060708;
  parts.incarnation = Incarnation{12};
  parts.state_version = StateVersion{41};
  parts.table = TableId{4};
  return parts;
}

// Every kind of data frame, dense and sparse.
inline std::vector<NamedFrame> SampleData(BufferPool& pool) {
  static const PushParams kParams = [] {
    PushParams params;
    params.weight = 2.5;
    params.set_hyper({0.125, 0.0625, 0.9, 0.999, 1e-8, 0.5});
    return params;
  }();
  static const PushParams kScaled = [] {
    PushParams params = kParams;
    params.value_scale = 0x1p-16;
    params.flags = kParamTwoPhase;
    return params;
  }();
  static const PushParams kWeighted = [] {
    PushParams params = kParams;
    params.flags = kParamWeighted;
    return params;
  }();
  static const PushParams kDecision = [] {
    PushParams params = kParams;
    params.scale = 0.25;
    params.flags = kParamDecide;
    return params;
  }();
  static const PushParams kAssigns = [] {
    PushParams params = kParams;
    params.op = static_cast<uint8_t>(PushOp::kAssign);
    params.column = 2;
    return params;
  }();
  static const PushParams kStep = [] {
    PushParams params = kParams;
    params.step = 0x7766554433221100;
    return params;
  }();
  static const std::byte kMask[] = {std::byte{0xFD}, std::byte{0x03}};
  static const SlotEntry kDense[] = {{1, 3, 7}, {4, 2, 8}};                // 5 elements
  static const SlotEntry kSparse[] = {{0, 2, 7}, {2, 0, 8}, {200, 1, 9}};  // 3 keys, rows of 2
  static const SlotEntry kAsked[] = {{0, 2, 0}, {200, 1, 0}};
  static const SlotEntry kAnswered[] = {{0, 2, Position::Of(1, 50).packed},
                                        {200, 1, Position::Of(2, 1).packed}};
  static const uint64_t kKeys[] = {11, 0xFFFFFFFFFFFFFFFF, 13};
  static const std::byte kBitmap[] = {std::byte{0x12}, std::byte{0}, std::byte{0x80}};

  std::vector<NamedFrame> all;
  const auto add = [&](const char* name, DataParts parts) {
    all.push_back({name, EncodeData(std::move(parts), pool)});
  };
  DataParts p = SampleParts(FrameType::kPush);
  p.params = &kParams, p.entries = kDense, p.owned = SampleFloats(5, pool);
  add("push_dense", std::move(p));
  p = SampleParts(FrameType::kPush);
  p.params = &kParams, p.entries = kSparse, p.keys = kKeys, p.owned = SampleFloats(6, pool);
  p.flags = kFlagValuesChecked;
  add("push_sparse", std::move(p));
  p = SampleParts(FrameType::kContribute);
  p.params = &kParams, p.entries = kSparse, p.keys = kKeys, p.owned = SampleFloats(6, pool);
  p.done_bitmap = kBitmap, p.round = Round{91}, p.flags = kFlagDone | kFlagPullAfter;
  add("contribute", std::move(p));
  p = SampleParts(FrameType::kDone);
  p.params = &kParams, p.done_bitmap = kBitmap, p.round = Round{91}, p.flags = kFlagPullAfter;
  add("done", std::move(p));
  p = SampleParts(FrameType::kContribute);
  p.params = &kScaled, p.entries = kDense, p.owned = SampleFloats(5, pool), p.done_bitmap = kBitmap;
  p.mask = kMask, p.round = Round{91}, p.flags = kFlagDone;
  add("contribute_first_phase", std::move(p));
  p = SampleParts(FrameType::kDone);
  p.params = &kDecision, p.done_bitmap = kBitmap, p.round = Round{91}, p.flags = kFlagPullAfter;
  add("decide", std::move(p));
  p = SampleParts(FrameType::kDone);
  p.params = &kWeighted, p.done_bitmap = kBitmap, p.round = Round{91};
  add("done_weighted", std::move(p));
  p = SampleParts(FrameType::kPush);
  p.params = &kAssigns, p.entries = kDense, p.mask = kMask, p.owned = SampleFloats(5, pool);
  add("assign", std::move(p));
  p = SampleParts(FrameType::kRoundReply);
  static const SlotEntry kReports[] = {{1, 4, 0}, {4, 4, 0}};
  p.entries = kReports, p.owned = SampleFloats(8, pool), p.round = Round{91}, p.flags = kFlagReport;
  add("report", std::move(p));
  p = SampleParts(FrameType::kPull);
  p.entries = kAsked, p.keys = kKeys, p.round = Round{91}, p.flags = kFlagSyncPull;
  add("pull", std::move(p));
  static const SlotEntry kKeysAsked[] = {{0, 0, kKeyColumn}, {200, 0, kKeyColumn}};
  p = SampleParts(FrameType::kPull);
  p.entries = kKeysAsked, p.flags = kFlagTrip;
  add("pull_keys", std::move(p));
  p = SampleParts(FrameType::kPush);
  p.params = &kStep, p.entries = kSparse, p.keys = kKeys, p.owned = SampleFloats(6, pool);
  p.flags = kFlagTrip;
  add("push_rows", std::move(p));
  p = SampleParts(FrameType::kPullReply);
  p.entries = kAnswered, p.owned = SampleFloats(6, pool);
  add("pull_reply", std::move(p));
  p = SampleParts(FrameType::kRoundReply);
  p.entries = kAnswered, p.owned = SampleFloats(6, pool), p.round = Round{91}, p.flags = kFlagPullAfter;
  add("round_reply", std::move(p));

  FrameHeader request;
  request.request_id = 0x0102030405060708;
  request.incarnation = 12;
  request.table = 4;
  const SlotEntry problems[] = {{1, static_cast<uint32_t>(Code::kUnavailable), 6},
                                {4, static_cast<uint32_t>(Code::kNotFinite), 8}};
  FramePtr clock = EncodeClock(TableId{5}, StateVersion{17}, true, pool);
  clock->header().round = 12;
  Seal(*clock);
  all.push_back({"clock", clock});
  all.push_back({"clock_reply", EncodeClockReply(request, Round{11}, StateVersion{18}, pool)});
  all.push_back({"push_reply_ok", EncodePushReply(request, {}, "", pool)});
  all.push_back({"push_reply_problems", EncodePushReply(request, problems, "slot 4: NaN in row 2", pool)});
  all.push_back({"error", EncodeError(request, {Code::kRetired, "incarnation 12 was declared dead"}, pool)});
  request.round = 91;
  all.push_back({"round_refusal", EncodeRoundRefusal(request, problems, "ranks 0 and 2: lr differs", pool)});
  return all;
}

// One operation of each shape: with everything that belongs to a push, with a payload that is no
// multiple of 8, and with none.
inline void AddSampleOps(OpBatch& batch) {
  PushParams params;
  params.set_hyper({0.125, 0.0625, 0.9, 0.999, 1e-8, 0.5, 77});
  params.value_scale = 0x1p-16;
  const uint64_t keys[] = {11, 0xFFFFFFFFFFFFFFFF, 13};
  const std::byte mask[] = {std::byte{0xFD}, std::byte{0x03}};
  const float values[] = {1, 2, 3};
  OpHeader op;
  op.kind = OpKind::kPush;
  op.slot = 200, op.table = 4, op.epoch = 3, op.index = 50, op.committed = 49, op.a = 12, op.b = 9;
  batch.Add(op, &params, keys, mask, std::as_bytes(std::span(values)));
  op.kind = OpKind::kClose;
  op.slot = 2, op.index = 51, op.committed = 50, op.a = 91, op.b = 0;
  batch.Add(op, nullptr, {}, {}, std::as_bytes(std::span("sums and contributors")));
  op.kind = OpKind::kHash;
  op.table = 0, op.a = 0x99AABBCCDDEEFF01, op.b = 41;
  batch.Add(op, nullptr, {}, {}, {});
}

// The stream between two shard threads.
inline std::vector<NamedFrame> SampleReplication(BufferPool& pool) {
  OpBatch batch(pool);
  AddSampleOps(batch);
  const SlotEntry refused[] = {{2, 0, 4}, {200, 0, 5}};
  return {{"replicate", batch.Take(17, 10, 41)},
          {"replica_ack", EncodeReplicaAck(17, {}, 41, pool)},
          {"replica_ack_refused", EncodeReplicaAck(18, refused, 42, pool)}};
}

// One frame in each coding of our own; lz4's bytes are lz4's affair.
inline std::vector<NamedFrame> SampleCoded(BufferPool& pool) {
  static const PushParams kParams;
  static const SlotEntry kEntries[] = {{1, 200, 7}, {4, 100, 8}};
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); i += 7) values[i] = static_cast<float>(i) - 128.0f;
  const struct {
    const char* name;
    Coding coding;
  } codings[] = {{"coded_float16", Coding::kFloat16},
                 {"coded_bfloat16", Coding::kBfloat16},
                 {"coded_nonzero", Coding::kNonZero}};
  std::vector<NamedFrame> all;
  for (const auto& [name, coding] : codings) {
    DataParts p = SampleParts(FrameType::kPush);
    p.params = &kParams, p.entries = kEntries, p.coding = coding;
    p.values = {std::as_bytes(std::span(values))};
    all.push_back({name, CodeFrame(*EncodeData(std::move(p), pool), pool)});
  }
  return all;
}

}  // namespace cairn::wire

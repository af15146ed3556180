// Control messages → FlatBuffers → frames. One Pack for each message, in the order of the variant;
// their mirror images are in control_decode.cc.
#include <cstring>
#include <new>

#include "base/check.h"
#include "wire/body_layout.h"
#include "wire/control.h"
#include "wire/state_codec.h"

namespace cairn::wire {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Offset<void> Pack(FlatBufferBuilder& b, const Register& m) {
  const auto cluster_id = PackString(b, m.cluster_id);
  const auto host = PackString(b, m.endpoint.host);
  return fb::CreateRegister(b, m.protocol_min, m.protocol_max, cluster_id, static_cast<uint8_t>(m.role),
                            m.uid, host, m.endpoint.port, m.threads, m.wanted_rank)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Registered& m) {
  const auto cluster_id = PackString(b, m.cluster_id);
  return fb::CreateRegistered(b, m.uid, cluster_id, m.term.value, m.incarnation.value, m.rank, m.barrier_base,
                              m.heartbeat_ms)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Heartbeat& m) {
  const auto open_rounds = PackRounds(b, m.open_rounds);
  const NodeStats& s = m.stats;
  const auto stats = fb::CreateNodeStats(b, s.pushes, s.pulls, s.rounds, s.bytes_in, s.bytes_out, s.rows,
                                         s.memory_bytes, s.connections, s.round_trips, s.replicated_bytes,
                                         s.unconfirmed_bytes, s.dense_bytes, s.memory.bytes, s.memory.group,
                                         static_cast<uint8_t>(s.memory.kind));
  std::vector<fb::SlotNews> news;
  for (const SlotNews& n : m.news)
    news.emplace_back(n.epoch, n.added.value, n.slot, n.server, static_cast<uint8_t>(n.kind));
  std::vector<fb::SlotLoad> loads;
  std::vector<uint64_t> pushed, pulled;
  for (const SlotLoad& l : m.loads) {
    loads.emplace_back(l.bytes, l.requests, l.slot);
    pushed.push_back(l.pushed);
    pulled.push_back(l.pulled);
  }
  std::vector<fb::HotRow> hot_rows;
  for (const HotRow& r : m.hot_rows) hot_rows.emplace_back(r.key, r.count, r.table.value);
  std::vector<fb::SampledTable> sampled;
  for (const SampledTable& t : m.sampled) sampled.emplace_back(t.count, t.table.value);
  std::vector<Offset<fb::StalledRound>> stalled;
  for (const StalledRound& r : m.stalled)
    stalled.push_back(fb::CreateStalledRound(b, r.table.value, r.round.value, r.waited_ms, r.missing,
                                             PackNumbers(b, r.missing_ranks)));
  using Stalled = flatbuffers::Offset<flatbuffers::Vector<Offset<fb::StalledRound>>>;
  const auto packed_stalled = stalled.empty() ? Stalled() : b.CreateVector(stalled);
  using News = flatbuffers::Offset<flatbuffers::Vector<const fb::SlotNews*>>;
  using Loads = flatbuffers::Offset<flatbuffers::Vector<const fb::SlotLoad*>>;
  const auto packed_news = news.empty() ? News() : b.CreateVectorOfStructs(news);
  using Work = flatbuffers::Offset<flatbuffers::Vector<uint64_t>>;
  using Rows = flatbuffers::Offset<flatbuffers::Vector<const fb::HotRow*>>;
  using Sampled = flatbuffers::Offset<flatbuffers::Vector<const fb::SampledTable*>>;
  const auto packed_loads = loads.empty() ? Loads() : b.CreateVectorOfStructs(loads);
  const auto packed_pushed = pushed.empty() ? Work() : b.CreateVector(pushed);
  const auto packed_pulled = pulled.empty() ? Work() : b.CreateVector(pulled);
  const auto packed_rows = hot_rows.empty() ? Rows() : b.CreateVectorOfStructs(hot_rows);
  const auto packed_sampled = sampled.empty() ? Sampled() : b.CreateVectorOfStructs(sampled);
  return fb::CreateHeartbeat(b, m.incarnation.value, m.uid, m.version.value, m.barrier_count,
                             m.hold_view.value, open_rounds, m.end_confirmed, stats, m.hold_version.value,
                             m.leaving, packed_news, packed_loads, packed_pushed, packed_pulled, packed_rows,
                             packed_sampled, packed_stalled)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const HeartbeatReply& m) {
  const auto awaiting = PackString(b, m.awaiting);
  return fb::CreateHeartbeatReply(b, m.term.value, m.version.value, m.barrier_open, awaiting, m.blocked_slots,
                                  m.heartbeat_ms)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const StateMessage& m) {
  return fb::CreateStateMessage(b, PackState(b, m.state)).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const CreateTable& m) {
  return fb::CreateCreateTable(b, m.request, m.incarnation.value, PackSpec(b, m.spec)).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const DropTable& m) {
  return fb::CreateDropTable(b, m.request, m.incarnation.value, PackString(b, m.name)).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const TableReply& m) {
  const auto text = PackString(b, m.text);
  return fb::CreateTableReply(b, m.request, static_cast<uint8_t>(m.code), text, m.table.value,
                              m.version.value)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Leave& m) {
  return fb::CreateLeave(b, m.incarnation.value).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const LeaveReply& m) {
  return fb::CreateLeaveReply(b, m.incarnation.value).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const StateAt& m) {
  return fb::CreateStateAt(b, m.version.value).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const ProcessEnded& m) {
  return fb::CreateProcessEnded(b, m.uid, m.out_of_memory).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const GiveUp& m) { return fb::CreateGiveUp(b, m.rank).Union(); }
Offset<void> Pack(FlatBufferBuilder& b, const AbortJob& m) {
  return fb::CreateAbortJob(b, PackString(b, CutText(m.reason))).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const StatusRequest& m) {
  return fb::CreateStatusRequest(b, m.request).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const StatusReply& m) {
  return fb::CreateStatusReply(b, m.request, PackString(b, m.json)).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Hello& m) {
  const auto cluster_id = PackString(b, m.cluster_id);
  return fb::CreateHello(b, m.protocol_min, m.protocol_max, cluster_id, m.incarnation.value,
                         m.server_incarnation.value, m.thread)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const HelloReply& m) {
  return fb::CreateHelloReply(b, m.protocol, m.version.value).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Refusal& m) {
  return fb::CreateRefusal(b, m.request, static_cast<uint8_t>(m.code), PackString(b, m.text)).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Blocked& m) {
  const auto ranks = PackNumbers(b, m.ranks);
  const auto what = PackString(b, m.what);
  return fb::CreateBlocked(b, m.incarnation.value, m.serial, m.barrier, ranks, what).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const Deadlock& m) {
  const auto text = PackString(b, m.text);
  return fb::CreateDeadlock(b, m.serial, text).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const StillWaiting& m) {
  const auto ranks = PackNumbers(b, m.missing_ranks);
  const auto waits_for = PackString(b, CutText(m.waits_for));
  return fb::CreateStillWaiting(b, m.request, m.table.value, m.round.value, ranks, waits_for).Union();
}

Offset<void> Pack(FlatBufferBuilder& b, const Scale& m) {
  return fb::CreateScale(b, m.request, m.servers).Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const ReplicaHello& m) {
  const auto cluster_id = PackString(b, m.cluster_id);
  return fb::CreateReplicaHello(b, m.protocol_min, m.protocol_max, cluster_id, m.from_server,
                                m.from_thread, m.from_incarnation.value, m.to_incarnation.value,
                                m.to_thread)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const ReplicaHelloReply& m) {
  return fb::CreateReplicaHelloReply(b, m.protocol, m.received).Union();
}

Offset<void> Pack(FlatBufferBuilder& b, const StateDelta& m) {
  const auto changed = PackState(b, m.changed);
  const auto slot_ids = PackNumbers(b, m.slot_ids);
  const auto servers_gone = PackNumbers(b, m.servers_gone);
  const auto workers_gone = PackNumbers(b, m.workers_gone);
  const auto tables_gone = PackNumbers(b, m.tables_gone);
  return fb::CreateStateDelta(b, m.base.value, changed, slot_ids, servers_gone, workers_gone, tables_gone)
      .Union();
}
Offset<void> Pack(FlatBufferBuilder& b, const CreateTables& m) {
  std::vector<Offset<fb::TableSpec>> specs;
  for (const TableSpec& spec : m.specs) specs.push_back(PackSpec(b, spec));
  return fb::CreateCreateTables(b, m.request, m.incarnation.value, b.CreateVector(specs)).Union();
}

// The union's tag of a message is its place in the variant, from 1.
static_assert(std::variant_size_v<ControlMessage> == static_cast<size_t>(fb::Message::MAX));

}  // namespace

FramePtr EncodeControl(const ControlMessage& message, BufferPool& pool) {
  FlatBufferBuilder b(512);
  const Offset<void> packed = std::visit([&b](const auto& m) { return Pack(b, m); }, message);
  b.Finish(fb::CreateControl(b, static_cast<fb::Message>(message.index() + 1), packed), kControlIdentifier);
  CAIRN_CHECK(b.GetSize() <= kMaxControlBytes);
  auto frame = std::make_shared<Frame>();
  frame->head = pool.Get(sizeof(FrameHeader) + b.GetSize());
  new (frame->head.data()) FrameHeader();
  std::memcpy(frame->head.data() + sizeof(FrameHeader), b.GetBufferPointer(), b.GetSize());
  Seal(*frame);
  return frame;
}

bool IsForNodes(const Frame& own) {
  if (own.header().type != FrameType::kControl) return false;
  switch (flatbuffers::GetRoot<fb::Control>(own.head.data() + sizeof(FrameHeader))->message_type()) {
    case fb::Message::Registered:
    case fb::Message::HeartbeatReply:
    case fb::Message::StateMessage:
    case fb::Message::StateDelta:
    case fb::Message::TableReply:
    case fb::Message::LeaveReply: return true;
    default: return false;
  }
}

const char* Name(const ControlMessage& message) {
  return fb::EnumNameMessage(static_cast<fb::Message>(message.index() + 1));
}

}  // namespace cairn::wire

// Control messages → FlatBuffers → frames, and back. One Pack and one Unpack for each message, in the order
// of the variant.
#include "wire/control.h"

#include <cstring>
#include <new>

#include "base/check.h"
#include "wire/body_layout.h"
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
  const auto stats =
      fb::CreateNodeStats(b, s.pushes, s.pulls, s.rounds, s.bytes_in, s.bytes_out, s.rows, s.memory_bytes,
                          s.connections, s.round_trips, s.replicated_bytes, s.unconfirmed_bytes,
                          s.dense_bytes, s.memory.bytes, s.memory.group, static_cast<uint8_t>(s.memory.kind));
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
  const auto packed_staleness = m.staleness.empty() ? Work() : b.CreateVector(m.staleness);
  return fb::CreateHeartbeat(b, m.incarnation.value, m.uid, m.version.value, m.barrier_count,
                             m.hold_view.value, open_rounds, m.end_confirmed, stats, m.hold_version.value,
                             m.leaving, packed_news, packed_loads, packed_pushed, packed_pulled, packed_rows,
                             packed_sampled, packed_stalled, packed_staleness)
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
  return fb::CreateReplicaHello(b, m.protocol_min, m.protocol_max, cluster_id, m.from_server, m.from_thread,
                                m.from_incarnation.value, m.to_incarnation.value, m.to_thread)
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

// Frames → FlatBuffers → control messages. The buffer is verified before anything is read from it,
// and what is copied out of it is bounded by its size. One Unpack for each message, the mirror
// images of the Packs above. What the budget cut short is caught at the end.

namespace {

Status UnpackCode(uint8_t in, Code* out) {
  if (in > static_cast<uint8_t>(Code::kInternal)) return BadControl("code " + std::to_string(in));
  *out = static_cast<Code>(in);
  return Status::Ok();
}

Status Unpack(const fb::Register& in, Budget& budget, Register* out) {
  out->protocol_min = in.protocol_min();
  out->protocol_max = in.protocol_max();
  out->cluster_id = UnpackString(in.cluster_id(), budget);
  if (in.role() > static_cast<uint8_t>(Role::kTool)) return BadControl("role " + std::to_string(in.role()));
  out->role = static_cast<Role>(in.role());
  out->uid = in.uid();
  out->endpoint = {UnpackString(in.host(), budget), in.port()};
  out->threads = in.threads();
  out->wanted_rank = in.wanted_rank();
  if (Status bad = CheckLength("a cluster id", out->cluster_id.size(), kMaxHostBytes); !bad.ok()) return bad;
  return CheckLength("a host", out->endpoint.host.size(), kMaxHostBytes);
}
Status Unpack(const fb::Registered& in, Budget& budget, Registered* out) {
  out->uid = in.uid();
  out->cluster_id = UnpackString(in.cluster_id(), budget);
  out->term = Term{in.term()};
  out->incarnation = Incarnation{in.incarnation()};
  out->rank = in.rank();
  out->barrier_base = in.barrier_base();
  out->heartbeat_ms = in.heartbeat_ms();
  return Status::Ok();
}
Status Unpack(const fb::Heartbeat& in, Budget& budget, Heartbeat* out) {
  out->incarnation = Incarnation{in.incarnation()};
  out->uid = in.uid();
  out->version = StateVersion{in.version()};
  out->barrier_count = in.barrier_count();
  out->hold_view = ViewNumber{in.hold_view()};
  out->open_rounds = UnpackRounds(in.open_rounds(), budget);
  out->end_confirmed = in.end_confirmed();
  if (const fb::NodeStats* s = in.stats()) {
    out->stats = {s->pushes(),
                  s->pulls(),
                  s->rounds(),
                  s->bytes_in(),
                  s->bytes_out(),
                  s->rows(),
                  s->memory_bytes(),
                  s->connections(),
                  s->round_trips(),
                  s->replicated_bytes(),
                  s->unconfirmed_bytes(),
                  s->dense_bytes(),
                  {}};
    if (s->memory_kind() > static_cast<uint8_t>(MemoryKind::kAddressSpace))
      return BadControl("kind of memory " + std::to_string(s->memory_kind()));
    out->stats.memory = {static_cast<MemoryKind>(s->memory_kind()), s->memory_left(), s->memory_group()};
  }
  out->hold_version = StateVersion{in.hold_version()};
  out->leaving = in.leaving();
  if (const auto* news = in.news(); news != nullptr && budget.TakeStructs(*news)) {
    for (const fb::SlotNews* n : *news) {
      if (n->kind() < SlotNews::kCaughtUp || n->kind() > SlotNews::kSpent)
        return BadControl("slot news " + std::to_string(n->kind()));
      out->news.push_back({n->slot(), static_cast<SlotNews::Kind>(n->kind()), n->server(), n->epoch(),
                           StateVersion{n->added()}});
    }
  }
  if (const auto* loads = in.loads(); loads != nullptr && budget.TakeStructs(*loads))
    for (const fb::SlotLoad* l : *loads) out->loads.push_back({l->slot(), l->bytes(), l->requests()});
  // A server of an earlier release says nothing of its work.
  if (const auto *pushed = in.pushed(), *pulled = in.pulled(); pushed != nullptr && pulled != nullptr) {
    if (pushed->size() != out->loads.size() || pulled->size() != out->loads.size())
      return BadControl("work of " + std::to_string(pushed->size()) + " and " +
                        std::to_string(pulled->size()) + " slots, loads of " +
                        std::to_string(out->loads.size()));
    if (!budget.TakeNumbers(*pushed) || !budget.TakeNumbers(*pulled)) return Status::Ok();
    for (uint32_t i = 0; i < out->loads.size(); ++i) {
      out->loads[i].pushed = pushed->Get(i);
      out->loads[i].pulled = pulled->Get(i);
    }
  }
  if (const auto* rows = in.hot_rows(); rows != nullptr && budget.TakeStructs(*rows)) {
    if (rows->size() > kMaxHotRows) return BadControl(std::to_string(rows->size()) + " hot rows");
    for (const fb::HotRow* r : *rows) out->hot_rows.push_back({TableId{r->table()}, r->key(), r->count()});
  }
  if (const auto* sampled = in.sampled(); sampled != nullptr && budget.TakeStructs(*sampled)) {
    if (sampled->size() > kMaxSampledTables)
      return BadControl(std::to_string(sampled->size()) + " sampled tables");
    for (const fb::SampledTable* t : *sampled) out->sampled.push_back({TableId{t->table()}, t->count()});
  }
  if (const auto* stalled = in.stalled()) {
    if (stalled->size() > kMaxStalledRounds)
      return BadControl(std::to_string(stalled->size()) + " stalled rounds");
    for (const fb::StalledRound* r : *stalled) {
      out->stalled.push_back({TableId{r->table()}, Round{r->round()}, r->waited_ms(), r->missing(),
                              UnpackNumbers(r->missing_ranks(), budget)});
      if (out->stalled.back().missing_ranks.size() > kMaxMissingNamed)
        return BadControl("too many missing ranks");
    }
  }
  if (const auto* staleness = in.staleness(); staleness != nullptr && budget.TakeNumbers(*staleness)) {
    if (staleness->size() > kStalenessKinds)
      return BadControl(std::to_string(staleness->size()) + " kinds of staleness");
    out->staleness.assign(staleness->begin(), staleness->end());
  }
  return Status::Ok();
}
Status Unpack(const fb::HeartbeatReply& in, Budget& budget, HeartbeatReply* out) {
  out->term = Term{in.term()};
  out->version = StateVersion{in.version()};
  out->barrier_open = in.barrier_open();
  out->awaiting = UnpackString(in.awaiting(), budget);
  out->blocked_slots = in.blocked_slots();
  out->heartbeat_ms = in.heartbeat_ms();
  return Status::Ok();
}
Status Unpack(const fb::StateMessage& in, Budget& budget, StateMessage* out) {
  return UnpackState(*in.state(), budget, &out->state);
}
Status Unpack(const fb::CreateTable& in, Budget& budget, CreateTable* out) {
  out->request = in.request();
  out->incarnation = Incarnation{in.incarnation()};
  return UnpackSpec(*in.spec(), budget, &out->spec);
}
Status Unpack(const fb::DropTable& in, Budget& budget, DropTable* out) {
  *out = {in.request(), Incarnation{in.incarnation()}, UnpackString(in.name(), budget)};
  return Status::Ok();
}
Status Unpack(const fb::TableReply& in, Budget& budget, TableReply* out) {
  out->request = in.request();
  out->text = UnpackString(in.text(), budget);
  out->table = TableId{in.table()};
  out->version = StateVersion{in.version()};
  return UnpackCode(in.code(), &out->code);
}
Status Unpack(const fb::Leave& in, Budget&, Leave* out) {
  out->incarnation = Incarnation{in.incarnation()};
  return Status::Ok();
}
Status Unpack(const fb::LeaveReply& in, Budget&, LeaveReply* out) {
  out->incarnation = Incarnation{in.incarnation()};
  return Status::Ok();
}
Status Unpack(const fb::StateAt& in, Budget&, StateAt* out) {
  out->version = StateVersion{in.version()};
  return Status::Ok();
}
Status Unpack(const fb::ProcessEnded& in, Budget&, ProcessEnded* out) {
  out->uid = in.uid();
  out->out_of_memory = in.out_of_memory();
  return Status::Ok();
}
Status Unpack(const fb::GiveUp& in, Budget&, GiveUp* out) {
  out->rank = in.rank();
  return Status::Ok();
}
Status Unpack(const fb::AbortJob& in, Budget& budget, AbortJob* out) {
  out->reason = UnpackString(in.reason(), budget);
  return CheckLength("a reason", out->reason.size(), kMaxTextBytes);
}
Status Unpack(const fb::StatusRequest& in, Budget&, StatusRequest* out) {
  out->request = in.request();
  return Status::Ok();
}
Status Unpack(const fb::StatusReply& in, Budget& budget, StatusReply* out) {
  *out = {in.request(), UnpackString(in.json(), budget)};
  return Status::Ok();
}
Status Unpack(const fb::Hello& in, Budget& budget, Hello* out) {
  out->protocol_min = in.protocol_min();
  out->protocol_max = in.protocol_max();
  out->cluster_id = UnpackString(in.cluster_id(), budget);
  out->incarnation = Incarnation{in.incarnation()};
  out->server_incarnation = Incarnation{in.server_incarnation()};
  out->thread = in.thread();
  return Status::Ok();
}
Status Unpack(const fb::HelloReply& in, Budget&, HelloReply* out) {
  *out = {in.protocol(), StateVersion{in.version()}};
  return Status::Ok();
}
Status Unpack(const fb::Refusal& in, Budget& budget, Refusal* out) {
  out->request = in.request();
  out->text = UnpackString(in.text(), budget);
  return UnpackCode(in.code(), &out->code);
}
Status Unpack(const fb::StillWaiting& in, Budget& budget, StillWaiting* out) {
  out->request = in.request();
  out->table = TableId{in.table()};
  out->round = Round{in.round()};
  out->missing_ranks = UnpackNumbers(in.missing_ranks(), budget);
  out->waits_for = UnpackString(in.waits_for(), budget);
  return CheckLength("who is waited for", out->waits_for.size(), kMaxTextBytes);
}
Status Unpack(const fb::Blocked& in, Budget& budget, Blocked* out) {
  out->incarnation = Incarnation{in.incarnation()};
  out->serial = in.serial();
  out->barrier = in.barrier();
  out->ranks = UnpackNumbers(in.ranks(), budget);
  out->what = UnpackString(in.what(), budget);
  return Status::Ok();
}
Status Unpack(const fb::Deadlock& in, Budget& budget, Deadlock* out) {
  out->serial = in.serial();
  out->text = UnpackString(in.text(), budget);
  return Status::Ok();
}
Status Unpack(const fb::Scale& in, Budget&, Scale* out) {
  *out = {in.request(), in.servers()};
  return Status::Ok();
}
Status Unpack(const fb::ReplicaHello& in, Budget& budget, ReplicaHello* out) {
  out->protocol_min = in.protocol_min();
  out->protocol_max = in.protocol_max();
  out->cluster_id = UnpackString(in.cluster_id(), budget);
  out->from_server = in.from_server();
  out->from_thread = in.from_thread();
  out->from_incarnation = Incarnation{in.from_incarnation()};
  out->to_incarnation = Incarnation{in.to_incarnation()};
  out->to_thread = in.to_thread();
  return Status::Ok();
}
Status Unpack(const fb::ReplicaHelloReply& in, Budget&, ReplicaHelloReply* out) {
  *out = {in.protocol(), in.received()};
  return Status::Ok();
}
Status Unpack(const fb::StateDelta& in, Budget& budget, StateDelta* out) {
  out->base = StateVersion{in.base()};
  out->slot_ids = UnpackNumbers(in.slot_ids(), budget);
  out->servers_gone = UnpackNumbers(in.servers_gone(), budget);
  out->workers_gone = UnpackNumbers(in.workers_gone(), budget);
  out->tables_gone = UnpackNumbers(in.tables_gone(), budget);
  return UnpackStateParts(*in.changed(), budget, &out->changed);
}
Status Unpack(const fb::CreateTables& in, Budget& budget, CreateTables* out) {
  out->request = in.request();
  out->incarnation = Incarnation{in.incarnation()};
  const size_t count = in.specs() == nullptr ? 0 : in.specs()->size();
  if (count == 0 || count > kMaxTablesAtOnce)
    return BadControl(std::to_string(count) + " tables at once, 1 to " + std::to_string(kMaxTablesAtOnce) +
                      " are allowed");
  out->specs.resize(count);
  for (uint32_t i = 0; i < count; ++i)
    if (Status bad = UnpackSpec(*in.specs()->Get(i), budget, &out->specs[i]); !bad.ok()) return bad;
  return Status::Ok();
}

template <class Fb, class Message>
Result<ControlMessage> Take(const Fb* in, size_t buffer_bytes, Message out) {
  // The verifier lets a union have a tag and no table.
  if (in == nullptr) return BadControl("it is empty");
  Budget budget(buffer_bytes);
  if (Status bad = Unpack(*in, budget, &out); !bad.ok()) return bad;
  if (budget.spent()) return BadControl("its parts overlap or are out of line");
  return ControlMessage(std::move(out));
}

}  // namespace

Result<ControlMessage> DecodeControl(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type != FrameType::kControl) return BadControl("not a control frame");
  if (body.size() != header.body_bytes || body.size() > kMaxControlBytes) return BadControl("wrong length");
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(body.data()) % alignof(uint64_t) == 0);
  if (!Verified<fb::Control>(body, kControlIdentifier)) return BadControl("not well formed");
  const fb::Control& control = *flatbuffers::GetRoot<fb::Control>(body.data());
  switch (control.message_type()) {
#define CAIRN_TAKE(Type) \
  case fb::Message::Type: return Take(control.message_as_##Type(), body.size(), Type())
    CAIRN_TAKE(Register);
    CAIRN_TAKE(Registered);
    CAIRN_TAKE(Heartbeat);
    CAIRN_TAKE(HeartbeatReply);
    CAIRN_TAKE(StateMessage);
    CAIRN_TAKE(CreateTable);
    CAIRN_TAKE(DropTable);
    CAIRN_TAKE(TableReply);
    CAIRN_TAKE(Leave);
    CAIRN_TAKE(LeaveReply);
    CAIRN_TAKE(GiveUp);
    CAIRN_TAKE(AbortJob);
    CAIRN_TAKE(StatusRequest);
    CAIRN_TAKE(StatusReply);
    CAIRN_TAKE(Hello);
    CAIRN_TAKE(HelloReply);
    CAIRN_TAKE(Refusal);
    CAIRN_TAKE(StillWaiting);
    CAIRN_TAKE(Scale);
    CAIRN_TAKE(ReplicaHello);
    CAIRN_TAKE(ReplicaHelloReply);
    CAIRN_TAKE(StateDelta);
    CAIRN_TAKE(ProcessEnded);
    CAIRN_TAKE(Blocked);
    CAIRN_TAKE(Deadlock);
    CAIRN_TAKE(CreateTables);
    CAIRN_TAKE(StateAt);
#undef CAIRN_TAKE
    case fb::Message::NONE: break;
  }
  return BadControl("unknown message " + std::to_string(static_cast<int>(control.message_type())));
}

}  // namespace cairn::wire

// ClusterState and TableSpec ↔ FlatBuffers. Decoding checks what a holder of a state relies on
// without looking again: values of enums, order, and that every slot's owner exists.
#include "wire/state_codec.h"

#include <cstring>

#include "base/check.h"
#include "wire/body_layout.h"
#include "wire/control.h"

namespace cairn::wire {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Vector;

constexpr size_t kTableCost = 8;  // what one table of a vector takes in the buffer at least

template <class Fb, class Items, class Pack>
Offset<Vector<Offset<Fb>>> PackTables(FlatBufferBuilder& b, const Items& items, Pack pack) {
  if (items.empty()) return 0;
  std::vector<Offset<Fb>> offsets;
  offsets.reserve(items.size());
  for (const auto& item : items) offsets.push_back(pack(item));
  return b.CreateVector(offsets);
}

template <class Fb, class Item, class Unpack>
Status UnpackTables(const Vector<Offset<Fb>>* in, Budget& budget, std::vector<Item>* out, Unpack unpack) {
  if (in == nullptr) return Status::Ok();
  if (!budget.Take(in->size(), kTableCost)) return BadControl("its parts overlap or are out of line");
  out->resize(in->size());
  for (flatbuffers::uoffset_t i = 0; i < in->size(); ++i) {
    if (Status bad = unpack(*in->Get(i), &(*out)[i]); !bad.ok()) return bad;
  }
  return Status::Ok();
}

template <class Enum>
bool UnpackEnum(uint8_t in, Enum last, Enum* out) {
  if (in > static_cast<uint8_t>(last)) return false;
  *out = static_cast<Enum>(in);
  return true;
}

Offset<Vector<const fb::SlotOwner*>> PackSlots(FlatBufferBuilder& b, const std::vector<SlotOwner>& slots) {
  if (slots.empty()) return 0;
  std::vector<fb::SlotOwner> packed;
  packed.reserve(slots.size());
  for (const SlotOwner& s : slots) packed.emplace_back(s.epoch, s.since.value, s.server, s.thread);
  return b.CreateVectorOfStructs(packed);
}

Status UnpackSlots(const Vector<const fb::SlotOwner*>* in, Budget& budget, std::vector<SlotOwner>* out) {
  if (in == nullptr) return Status::Ok();
  if (in->size() > kMaxSlots) return BadControl(std::to_string(in->size()) + " slots");
  if (!budget.TakeStructs(*in)) return BadControl("its parts overlap or are out of line");
  out->reserve(in->size());
  for (const fb::SlotOwner* s : *in) {
    SlotOwner& owner = out->emplace_back();
    owner.server = s->server();
    owner.thread = s->thread();
    owner.epoch = s->epoch();
    owner.since = StateVersion{s->since()};
  }
  return Status::Ok();
}

Offset<Vector<const fb::Backup*>> PackBackups(FlatBufferBuilder& b, const std::vector<SlotOwner>& slots) {
  std::vector<fb::Backup> packed;
  for (uint32_t slot = 0; slot < slots.size(); ++slot)
    for (const Backup& backup : slots[slot].backups)
      packed.emplace_back(backup.added.value, slot, backup.server, backup.thread, backup.in_sync);
  return packed.empty() ? Offset<Vector<const fb::Backup*>>() : b.CreateVectorOfStructs(packed);
}

Offset<Vector<const fb::Heir*>> PackHeirs(FlatBufferBuilder& b, const std::vector<SlotOwner>& slots) {
  std::vector<fb::Heir> packed;
  for (uint32_t slot = 0; slot < slots.size(); ++slot)
    if (slots[slot].heir != kNoServer) packed.emplace_back(slot, slots[slot].heir);
  return packed.empty() ? Offset<Vector<const fb::Heir*>>() : b.CreateVectorOfStructs(packed);
}

Status UnpackBackups(const fb::ClusterState& in, Budget& budget, std::vector<SlotOwner>* slots) {
  if (const auto* backups = in.backups(); backups != nullptr && budget.TakeStructs(*backups)) {
    for (const fb::Backup* b : *backups) {
      if (b->slot() >= slots->size() || (*slots)[b->slot()].backups.size() >= kMaxBackups)
        return BadControl("a backup of slot " + std::to_string(b->slot()));
      (*slots)[b->slot()].backups.push_back(
          {b->server(), b->thread(), b->in_sync(), StateVersion{b->added()}});
    }
  }
  if (const auto* heirs = in.heirs(); heirs != nullptr && budget.TakeStructs(*heirs)) {
    for (const fb::Heir* h : *heirs) {
      if (h->slot() >= slots->size()) return BadControl("an heir of slot " + std::to_string(h->slot()));
      (*slots)[h->slot()].heir = h->server();
    }
  }
  return Status::Ok();
}

// What a holder relies on: every backup is a thread that exists, each on another server, and an heir is
// one of those in sync.
Status CheckBackups(const SlotOwner& slot, const std::vector<uint32_t>& threads) {
  for (size_t i = 0; i < slot.backups.size(); ++i) {
    const Backup& backup = slot.backups[i];
    bool good = backup.server < threads.size() && backup.thread < threads[backup.server];
    good &= backup.server != slot.server;
    for (size_t j = 0; j < i; ++j) good &= slot.backups[j].server != backup.server;
    if (!good)
      return BadControl("a slot has a backup on server " + std::to_string(backup.server) + " thread " +
                        std::to_string(backup.thread) + ", which can't be");
  }
  if (slot.heir == kNoServer) return Status::Ok();
  const Backup* heir = slot.FindBackup(slot.heir);
  return heir != nullptr && heir->in_sync ? Status::Ok() : BadControl("an heir is not in sync");
}

Status UnpackServer(const fb::ServerInfo& in, Budget& budget, ServerInfo* out) {
  out->index = in.index();
  out->incarnation = Incarnation{in.incarnation()};
  out->endpoint = {UnpackString(in.host(), budget), in.port()};
  out->threads = in.threads();
  out->leaving = in.leaving();
  return CheckLength("a host", out->endpoint.host.size(), kMaxHostBytes);
}

Status UnpackWorker(const fb::WorkerInfo& in, Budget& budget, WorkerInfo* out) {
  out->rank = Rank{in.rank()};
  out->incarnation = Incarnation{in.incarnation()};
  out->join_view = ViewNumber{in.join_view()};
  out->endpoint = {UnpackString(in.host(), budget), in.port()};
  return CheckLength("a host", out->endpoint.host.size(), kMaxHostBytes);
}

Status UnpackTable(const fb::TableInfo& in, Budget& budget, TableInfo* out) {
  out->id = TableId{in.id()};
  out->created_view = ViewNumber{in.created_view()};
  return UnpackSpec(*in.spec(), budget, &out->spec);
}

Status UnpackView(const fb::View& in, Budget& budget, View* out) {
  out->number = ViewNumber{in.number()};
  out->starts = UnpackRounds(in.starts(), budget);
  return Status::Ok();
}

}  // namespace

// What a holder relies on: servers by index, workers by rank, and an owner for every slot of a
// running job.
Status CheckState(const ClusterState& state) {
  std::vector<uint32_t> threads;  // by server index; 0 where there is none
  for (size_t i = 0; i < state.servers.size(); ++i) {
    const ServerInfo& server = state.servers[i];
    if (server.index >= kMaxSlots || (i > 0 && state.servers[i - 1].index >= server.index)) {
      return BadControl("servers do not ascend");
    }
    threads.resize(server.index + 1, 0);
    threads[server.index] = server.threads;
  }
  for (size_t i = 1; i < state.workers.size(); ++i) {
    if (state.workers[i - 1].rank >= state.workers[i].rank) return BadControl("workers do not ascend");
  }
  for (size_t i = 1; i < state.tables.size(); ++i) {
    if (state.tables[i - 1].id >= state.tables[i].id) return BadControl("tables do not ascend");
  }
  if (state.phase != Phase::kRunning) return Status::Ok();
  if (state.slots.empty()) return BadControl("a running job without slots");
  for (const SlotOwner& slot : state.slots) {
    if (slot.server >= threads.size() || slot.thread >= threads[slot.server]) {
      return BadControl("a slot belongs to server " + std::to_string(slot.server) + " thread " +
                        std::to_string(slot.thread) + ", which is not there");
    }
    if (Status bad = CheckBackups(slot, threads); !bad.ok()) return bad;
  }
  return Status::Ok();
}

Offset<Vector<const fb::TableRound*>> PackRounds(FlatBufferBuilder& b,
                                                 const std::vector<TableRound>& rounds) {
  if (rounds.empty()) return 0;
  std::vector<fb::TableRound> packed;
  packed.reserve(rounds.size());
  for (const TableRound& r : rounds) packed.emplace_back(r.round.value, r.table.value);
  return b.CreateVectorOfStructs(packed);
}

std::vector<TableRound> UnpackRounds(const Vector<const fb::TableRound*>* rounds, Budget& budget) {
  std::vector<TableRound> out;
  if (rounds == nullptr || !budget.TakeStructs(*rounds)) return out;
  out.reserve(rounds->size());
  for (const fb::TableRound* r : *rounds) out.push_back({TableId{r->table()}, Round{r->round()}});
  return out;
}

Offset<Vector<uint32_t>> PackNumbers(FlatBufferBuilder& b, const std::vector<uint32_t>& numbers) {
  return numbers.empty() ? Offset<Vector<uint32_t>>() : b.CreateVector(numbers);
}

std::vector<uint32_t> UnpackNumbers(const Vector<uint32_t>* numbers, Budget& budget) {
  if (numbers == nullptr || !budget.TakeNumbers(*numbers)) return {};
  return {numbers->begin(), numbers->end()};
}

Offset<fb::TableSpec> PackSpec(FlatBufferBuilder& b, const TableSpec& spec) {
  const auto name = PackString(b, spec.name);
  const auto segments = spec.segments.empty() ? Offset<Vector<uint64_t>>() : b.CreateVector(spec.segments);
  return fb::CreateTableSpec(b, name, static_cast<uint8_t>(spec.kind), static_cast<uint8_t>(spec.element),
                             static_cast<uint8_t>(spec.mode), static_cast<uint8_t>(spec.optimizer),
                             static_cast<uint8_t>(spec.non_finite), spec.deterministic, spec.size, spec.dim,
                             static_cast<uint8_t>(spec.init.kind), spec.init.a, spec.init.b, spec.init.seed,
                             spec.optimizer_flags, spec.initial_state, segments, spec.init.stream,
                             static_cast<uint8_t>(spec.wire), spec.wire_topk,
                             static_cast<uint8_t>(spec.storage), spec.staleness);
}

// What tables rely on: ends that ascend, the last one being the end of the table.
Status CheckSegments(const TableSpec& spec) {
  if (spec.segments.empty()) return Status::Ok();
  bool good = spec.segments.size() <= kMaxSegments && spec.segments.back() == spec.size;
  uint64_t end = 0;
  for (uint64_t next : spec.segments) {
    good &= next > end;
    end = next;
  }
  return good ? Status::Ok()
              : BadControl("table \"" + spec.name + "\" has segments that do not ascend to its size");
}

Status UnpackSpec(const fb::TableSpec& in, Budget& budget, TableSpec* out) {
  out->name = UnpackString(in.name(), budget);
  const bool known = UnpackEnum(in.kind(), TableKind::kSparse, &out->kind) &&
                     UnpackEnum(in.element(), ElementType::kInt64, &out->element) &&
                     UnpackEnum(in.mode(), Mode::kSync, &out->mode) &&
                     UnpackEnum(in.optimizer(), OptimizerKind::kFtrl, &out->optimizer) &&
                     UnpackEnum(in.non_finite(), NonFinitePolicy::kAllow, &out->non_finite) &&
                     UnpackEnum(in.init_kind(), InitKind::kNormal, &out->init.kind) &&
                     UnpackEnum(in.wire(), WireFormat::kLz4, &out->wire) &&
                     UnpackEnum(in.storage(), Storage::kFloat16, &out->storage);
  if (!known) return BadControl("table \"" + out->name + "\" asks for something this release does not know");
  out->deterministic = in.deterministic();
  out->size = in.size();
  out->dim = in.dim();
  out->init.a = in.init_a();
  out->init.b = in.init_b();
  out->init.seed = in.init_seed();
  out->init.stream = in.init_stream();
  out->optimizer_flags = in.optimizer_flags();
  out->initial_state = in.initial_state();
  out->wire_topk = in.wire_topk();
  out->staleness = in.staleness();
  if (const auto* segments = in.segments(); segments != nullptr && budget.TakeNumbers(*segments))
    out->segments.assign(segments->begin(), segments->end());
  if (Status wrong = CheckSegments(*out); !wrong.ok()) return wrong;
  return CheckLength("a table name", out->name.size(), kMaxTableNameBytes);
}

Offset<fb::ClusterState> PackState(FlatBufferBuilder& b, const ClusterState& state) {
  const auto servers = PackTables<fb::ServerInfo>(b, state.servers, [&](const ServerInfo& s) {
    const auto host = PackString(b, s.endpoint.host);
    return fb::CreateServerInfo(b, s.index, s.incarnation.value, host, s.endpoint.port, s.threads, s.leaving);
  });
  const auto workers = PackTables<fb::WorkerInfo>(b, state.workers, [&](const WorkerInfo& w) {
    const auto host = PackString(b, w.endpoint.host);
    return fb::CreateWorkerInfo(b, w.rank.value, w.incarnation.value, w.join_view.value, host,
                                w.endpoint.port);
  });
  const auto views = PackTables<fb::View>(b, state.views, [&](const View& v) {
    const auto starts = PackRounds(b, v.starts);
    return fb::CreateView(b, v.number.value, starts);
  });
  const auto tables = PackTables<fb::TableInfo>(b, state.tables, [&](const TableInfo& t) {
    const auto spec = PackSpec(b, t.spec);
    return fb::CreateTableInfo(b, t.id.value, spec, t.created_view.value);
  });
  const auto slots = PackSlots(b, state.slots);
  const auto backups = PackBackups(b, state.slots);
  const auto heirs = PackHeirs(b, state.slots);
  const auto done_ranks = PackNumbers(b, state.done_ranks);
  const auto cluster_id = PackString(b, state.cluster_id);
  const auto failure = PackString(b, state.failure);
  return fb::CreateClusterState(
      b, cluster_id, state.term.value, state.version.value, static_cast<uint8_t>(state.phase), failure,
      state.expected_servers, state.expected_workers, servers, slots, workers, state.next_incarnation.value,
      state.view.value, state.pending_view.value, views, tables, state.next_table.value, done_ranks,
      state.replicas, state.min_in_sync, state.failovers, backups, heirs);
}

Status UnpackStateParts(const fb::ClusterState& in, Budget& budget, ClusterState* out) {
  out->cluster_id = UnpackString(in.cluster_id(), budget);
  out->term = Term{in.term()};
  out->version = StateVersion{in.version()};
  if (!UnpackEnum(in.phase(), Phase::kFailed, &out->phase)) return BadControl("unknown phase");
  out->failure = UnpackString(in.failure(), budget);
  out->expected_servers = in.expected_servers();
  out->expected_workers = in.expected_workers();
  out->next_incarnation = Incarnation{in.next_incarnation()};
  out->view = ViewNumber{in.view()};
  out->pending_view = ViewNumber{in.pending_view()};
  out->next_table = TableId{in.next_table()};
  out->done_ranks = UnpackNumbers(in.done_ranks(), budget);
  out->replicas = in.replicas();
  out->min_in_sync = in.min_in_sync();
  out->failovers = in.failovers();
  const auto with = [&budget](auto unpack) {
    return [&budget, unpack](const auto& from, auto* to) { return unpack(from, budget, to); };
  };
  if (Status bad = UnpackTables(in.servers(), budget, &out->servers, with(UnpackServer)); !bad.ok())
    return bad;
  if (Status bad = UnpackTables(in.workers(), budget, &out->workers, with(UnpackWorker)); !bad.ok())
    return bad;
  if (Status bad = UnpackTables(in.views(), budget, &out->views, with(UnpackView)); !bad.ok()) return bad;
  if (Status bad = UnpackTables(in.tables(), budget, &out->tables, with(UnpackTable)); !bad.ok()) return bad;
  if (Status bad = UnpackSlots(in.slots(), budget, &out->slots); !bad.ok()) return bad;
  if (Status bad = UnpackBackups(in, budget, &out->slots); !bad.ok()) return bad;
  if (budget.spent()) return BadControl("its parts overlap or are out of line");
  return Status::Ok();
}

Status UnpackState(const fb::ClusterState& in, Budget& budget, ClusterState* out) {
  if (Status bad = UnpackStateParts(in, budget, out); !bad.ok()) return bad;
  return CheckState(*out);
}

std::vector<std::byte> EncodeState(const ClusterState& state) {
  FlatBufferBuilder b(4096);
  b.Finish(PackState(b, state), kStateIdentifier);
  CAIRN_CHECK(b.GetSize() <= kMaxControlBytes);
  const auto* first = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {first, first + b.GetSize()};
}

Result<ClusterState> DecodeState(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxControlBytes) return BadControl("a state that is too large");
  // Records of a log lie anywhere; FlatBuffers wants its numbers aligned.
  std::vector<uint64_t> aligned;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    aligned.resize(bytes.size() / sizeof(uint64_t) + 1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    bytes = std::as_bytes(std::span(aligned)).first(bytes.size());
  }
  if (!Verified<fb::ClusterState>(bytes, kStateIdentifier)) return BadControl("not a cluster state");
  ClusterState state;
  Budget budget(bytes.size());
  if (Status bad = UnpackState(*flatbuffers::GetRoot<fb::ClusterState>(bytes.data()), budget, &state);
      !bad.ok()) {
    return bad;
  }
  return state;
}

}  // namespace cairn::wire

#include "server/replication/backup_side.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/planted.h"
#include "server/slots/request.h"
#include "server/slots/slot_round.h"

namespace cairn::server {
namespace {
Status Refused(std::string why) { return {Code::kUnavailable, std::move(why)}; }
}  // namespace

void BackupSide::Begin(uint32_t local, OwnedSlot::Role was, const wire::SlotOwner& owner,
                       const wire::Backup& backup) {
  OwnedSlot& slot = slots_[local];
  Backup& here = backups_[local];
  CAIRN_CHECK(slot.role == OwnedSlot::Role::kBackup);
  if (was == OwnedSlot::Role::kNone) {
    // In sync at first sight: the cluster has just been formed, and there is nothing yet.
    slot.ForgetIndex();
    here.received = 0;
    here.whole = backup.in_sync;
    here.line_epoch = backup.in_sync ? owner.epoch : 0;
  } else if (was == OwnedSlot::Role::kPrimary) {
    here.whole = backup.in_sync;  // handed over: the same as the new primary has
    here.received = slot.index();
    here.line_epoch = 0;
    for (auto& [id, table] : tables_.all())  // what was only staged is sent to the new primary
      if (table.sync() && local < table.rounds.size()) table.rounds[local].DropStaged(*table.rows[local]);
  } else if (backup.added != here.added) {
    here.whole = false;
  }
  here.added = backup.added;
}

bool BackupSide::Promote(uint32_t local) {
  const bool applied = ApplyTail(local, Held(local));
  CAIRN_CHECK(!applied || backups_[local].tail.empty());
  return backups_[local].whole && applied;
}

void BackupSide::Clear(uint32_t local) {
  Backup& here = backups_[local];
  here.received = 0;
  for (const auto& raw : here.tail) tail_bytes_ -= raw.size();
  here.tail.clear();
  here.copy.Take();
  here.copying = here.whole = false;
  here.chunks = 0;
  content_.Clear(local);
}

void BackupSide::OnState() {
  if (!CAIRN_BUG(kEpochIgnored)) {
    // A server that is gone sends nothing more that counts.
    const auto& servers = context_.state().servers;
    std::erase_if(sources_, [&](const auto& item) {
      return std::none_of(servers.begin(), servers.end(),
                          [&](const auto& server) { return server.incarnation == item.first.first; });
    });
    std::erase_if(connections_, [&](const auto& item) { return !sources_.contains(item.second); });
  }
  for (auto& [key, source] : sources_) TakeHeldFrames(source);
}

Status BackupSide::CheckHello(const wire::ReplicaHello& hello) const {
  if (hello.protocol_min > wire::kProtocolVersion || hello.protocol_max < wire::kProtocolVersion)
    return {Code::kProtocol, "speaks protocol " + std::to_string(wire::kProtocolVersion) +
                                 ", another server another one: use the same release everywhere"};
  if (CAIRN_BUG(kRestartedIsTheSame) && hello.to_incarnation != context_.incarnation()) return Status::Ok();
  if (!context_.registered() || !context_.has_state()) return {Code::kUnavailable, "not registered yet"};
  const wire::ClusterState& state = context_.state();
  if (hello.cluster_id != state.cluster_id)
    return {Code::kProtocol, "belongs to cluster " + state.cluster_id + ", not " + hello.cluster_id};
  if (hello.to_incarnation != context_.incarnation() || hello.to_thread != context_.options().thread)
    return {Code::kProtocol, "is thread " + std::to_string(context_.options().thread) + " of incarnation " +
                                 std::to_string(context_.incarnation().value) + ", another one is meant"};
  const wire::ServerInfo* from = state.FindServer(hello.from_server);
  if (from != nullptr && from->incarnation == hello.from_incarnation) return Status::Ok();
  if (hello.from_incarnation >= state.next_incarnation)
    return {Code::kUnavailable, "has not heard of this server yet"};
  if (CAIRN_BUG(kEpochIgnored)) return Status::Ok();
  return {Code::kRetired,
          "incarnation " + std::to_string(hello.from_incarnation.value) + " was declared dead or has left"};
}

void BackupSide::OnHello(ConnId conn, const wire::ReplicaHello& hello) {
  const SourceKey key{hello.from_incarnation, hello.from_thread};
  Source& source = sources_[key];
  source.server = static_cast<uint16_t>(hello.from_server);
  source.conn = conn;
#ifdef CAIRN_WITH_PLANTED_BUGS
  source.meant_another = CAIRN_BUG(kRestartedIsTheSame) && hello.to_incarnation != context_.incarnation();
#endif
  connections_[conn] = key;
  outbox_.Send(conn, source.receiver.MakeHelloReply(context_.pool()));
  outbox_.Send(conn, source.receiver.MakeAck(context_.version(), context_.pool()));
}

void BackupSide::OnFrame(ConnId conn, wire::InFrame& frame) {
  Source& source = sources_[connections_.at(conn)];
  source.conn = conn;
  while (source.meant_another && source.receiver.received() + 1 < frame.header.request_id)
    source.receiver.Taken();
  const uint64_t most_held = context_.options().bounds.most_held_bytes;
  switch (source.receiver.Take(frame.header)) {
    case ReplicaReceiver::Verdict::kNext:
      if (frame.header.state_version > context_.version().value) {
        source.receiver.Hold(frame, most_held);
      } else {
        TakeOperations(source, frame);
      }
      break;
    case ReplicaReceiver::Verdict::kGap: source.receiver.Hold(frame, most_held); break;
    case ReplicaReceiver::Verdict::kDuplicate: break;
  }
  TakeHeldFrames(source);
}

void BackupSide::OnDisconnect(ConnId conn) {
  auto known = connections_.find(conn);
  if (known == connections_.end()) return;
  if (auto source = sources_.find(known->second); source != sources_.end() && source->second.conn == conn)
    source->second.conn = ConnId{};
  connections_.erase(known);
}

void BackupSide::TakeHeldFrames(Source& source) {
  while (auto frame = source.receiver.NextHeld(context_.version())) TakeOperations(source, *frame);
  if (source.conn != ConnId{})
    outbox_.Send(source.conn, source.receiver.MakeAck(context_.version(), context_.pool()));
}

void BackupSide::TakeOperations(Source& source, const wire::InFrame& frame) {
  // It is not damaged (it has passed its checksum, or came from this host): from another release, or a bug.
  if (Status bad = wire::CheckOps(frame.body()); !bad.ok())
    return context_.Log("server " + std::to_string(source.server) +
                        " sent what can't be read: " + bad.message());
  const auto& owners = context_.state().slots;
  wire::OpReader reader(frame.body());
  wire::OpView op;
  while (reader.Next(&op)) {
    const SlotId slot{op.header.slot};
    const Status taken = TakeOperation(source.server, op);
    if (taken.ok()) {
      source.receiver.Accept(slot);
      continue;
    }
    const uint32_t local = slots_.LocalOfAny(slot.value);
    if (source.meant_another && local == OwnedSlots::kNotHere) continue;
    const bool newer = slot.value < owners.size() && owners[slot.value].epoch > op.header.epoch;
    if (newer && CAIRN_BUG(kEpochIgnored)) continue;
    if (!newer && local != OwnedSlots::kNotHere && slots_[local].role == OwnedSlot::Role::kBackup) {
      const bool was_whole = std::exchange(backups_[local].whole, false);
      backups_[local].copying = false;
      if (was_whole)
        context_.Log("partition " + std::to_string(slot.value) +
                     " has to be copied here again: " + taken.message());
    }
    source.receiver.Refuse(slot, newer ? owners[slot.value].epoch : op.header.epoch);
  }
  source.receiver.Taken();
}

Status BackupSide::TakeOperation(uint16_t from, const wire::OpView& op) {
  const wire::OpHeader& h = op.header;
  const uint32_t local = slots_.LocalOfAny(h.slot);
  if (local == OwnedSlots::kNotHere || slots_[local].role != OwnedSlot::Role::kBackup)
    return Refused("not a backup of it");
  if (h.index > Position::kMaxIndex || h.epoch > Position::kMaxEpoch) return Refused("no position is so far");
  const bool theirs = context_.state().slots[h.slot].server == from && h.epoch == slots_[local].epoch();
  if (!theirs) return Refused("it has another primary");
  Backup& here = backups_[local];
  switch (h.kind) {
    case wire::OpKind::kBegin: return BeginCopy(local, h);
    case wire::OpKind::kChunk: return TakeChunk(here, op);
    case wire::OpKind::kEnd: return EndCopy(local, op);
    case wire::OpKind::kContinue: return ContinueUnder(local, h);
    default: break;
  }
  if (!here.whole && !here.copying) return Refused("the copy is not whole");
  if (here.line_epoch != h.epoch) return Refused("its new primary has not begun");
  if (h.kind == wire::OpKind::kHash) {
    if (here.whole && !ApplyTail(local, std::min(h.committed, here.received)))
      return Refused("an operation does not fit");
    return CompareHash(local, h);
  }
  if (h.kind != wire::OpKind::kCommit) {
    if (Status s = TakeNext(local, op); !s.ok()) return s;
  }
  if (!here.whole) return Status::Ok();  // the rest of the copy comes first
  CAIRN_CHECK((slots_[local].index() <= here.received && here.received <= Held(local)) || CAIRN_ANY_BUG);
  return ApplyTail(local, std::min(h.committed, here.received)) ? Status::Ok()
                                                                : Refused("an operation does not fit");
}

// An operation proper: the next one, or one that is known.
Status BackupSide::TakeNext(uint32_t local, const wire::OpView& op) {
  const wire::OpHeader& h = op.header;
  Backup& here = backups_[local];
  if (h.index > here.received + 1) return Refused("operations are missing");
  if (h.index <= here.received) return Status::Ok();
  const bool kept = here.whole && Keeps(local, op);
  here.received = h.index;
  if (kept) return Status::Ok();  // it stays where it is
  if (here.whole && here.tail.empty() && (h.committed >= h.index || CAIRN_BUG(kApplyUncommitted)))
    return Apply(local, op) ? Status::Ok() : Refused("an operation does not fit");
  if (here.whole || !CAIRN_BUG(kCopyTailDropped)) {
    here.tail.emplace_back(op.raw.begin(), op.raw.end());
    tail_bytes_ += op.raw.size();
  }
  return Status::Ok();
}

Status BackupSide::BeginCopy(uint32_t local, const wire::OpHeader& header) {
  Backup& here = backups_[local];
  if (header.a != here.added.value) return Refused("the copy is for an earlier backup");
  Clear(local);
  here.copying = true;
  here.received = header.index;
  here.line_epoch = header.epoch;
  return Status::Ok();
}

Status BackupSide::TakeChunk(Backup& here, const wire::OpView& op) {
  if (!here.copying || op.header.a != here.chunks) return Refused("a piece of the copy is missing");
  ++here.chunks;
  here.copy.PutRaw(op.payload);
  return Status::Ok();
}

Status BackupSide::EndCopy(uint32_t local, const wire::OpView& op) {
  Backup& here = backups_[local];
  if (!here.copying || op.header.a != here.chunks) return Refused("a piece of the copy is missing");
  const std::vector<std::byte> content = here.copy.Take();
  here.copying = false;
  if (!content_.Load(local, content)) return Refused("the copy can't be read");
  const bool fits = op.header.index + here.tail.size() == here.received || CAIRN_BUG(kCopyTailDropped);
  if (slots_[local].index() != 0 || !fits) return Refused("the copy does not fit what came with it");
  slots_[local].StartAt(op.header.index);
  here.whole = true;
  return ApplyTail(local, op.header.committed) ? Status::Ok() : Refused("an operation does not fit");
}

Status BackupSide::ContinueUnder(uint32_t local, const wire::OpHeader& header) {
  Backup& here = backups_[local];
  const uint64_t index = slots_[local].index();
  if (!here.whole) return Refused("the copy is not whole");
  if (index > header.index) return Refused("it has operations that its new primary has not");
  // What is committed is the same everywhere. All above comes again, and may be something else: another
  // primary in between may have told this one something that it told nobody else. Until it comes, what is
  // here is kept: it may be acknowledged, and this primary may die before it has sent it again.
  if (Held(local) <= here.received) here.kept_epoch = here.line_epoch;
  here.received = std::min(here.received, std::max(index, header.committed));
  const uint64_t kept = CAIRN_BUG(kTailForgotten) ? here.received : std::max(header.index, here.received);
  while (Held(local) > kept) PopTail(here);
  if (here.received < header.a) return Refused("its primary can't send again what is missing");
  CAIRN_CHECK(header.epoch >= here.line_epoch || CAIRN_ANY_BUG);
  here.line_epoch = header.epoch;
  return Status::Ok();
}

void BackupSide::PopTail(Backup& here) {
  CAIRN_CHECK(!here.tail.empty() && tail_bytes_ >= here.tail.back().size());
  tail_bytes_ -= here.tail.back().size();
  here.tail.pop_back();
}

// True if an earlier primary has sent the same operation. If it was another one, all behind it was another
// line of operations, of which nothing can have been committed.
bool BackupSide::Keeps(uint32_t local, const wire::OpView& op) {
  Backup& here = backups_[local];
  if (Held(local) < op.header.index) return false;
  if (wire::SameOperation(here.tail[op.header.index - slots_[local].index() - 1], op.raw)) return true;
  while (Held(local) >= op.header.index) PopTail(here);
  return false;
}

// All of the tail up to this index; false if something is not what an operation is.
bool BackupSide::ApplyTail(uint32_t local, uint64_t committed) {
  Backup& here = backups_[local];
  while (!here.tail.empty() && slots_[local].index() < committed) {
    const std::vector<std::byte> raw = std::move(here.tail.front());
    here.tail.pop_front();
    tail_bytes_ -= raw.size();
    const auto op = wire::ParseOp(raw);
    if (!op.ok() || !Apply(local, *op)) return false;
  }
  return true;
}

bool BackupSide::Apply(uint32_t local, const wire::OpView& op) {
  const wire::OpHeader& h = op.header;
  if (h.index <= slots_[local].index()) return false;  // not of this line
  slots_[local].ApplyNext(h.index);
  TableState* table = tables_.Find(TableId{h.table});
  if (h.kind == wire::OpKind::kPush || h.kind == wire::OpKind::kRefusal) return ApplyPush(local, table, op);
  if (table == nullptr) return true;  // dropped meanwhile
  if (!table->sync()) return false;
  table::SlotTable& rows = *table->rows[local];
  SlotRound& round = table->rounds[local];
  ByteReader in(op.payload);
  if (h.kind == wire::OpKind::kSumUp) {
    if (rows.staged()) rows.DropStaged();
    if (!round.LoadSummed(Round{h.a}, in)) return false;
    return in.Get<uint8_t>() == 0 || rows.LoadStaged(in);
  }
  ClosedRound closed;
  if (!LoadClosed(in, &closed) || Round{h.a} < round.open()) return false;
  if (in.Get<uint8_t>() != 0) {
    if (rows.staged()) rows.DropStaged();
    if (!rows.LoadStaged(in)) return false;
  }
  if (closed.effect != ClosedRound::Effect::kNothing && !rows.staged()) return false;
  if (CAIRN_BUG(kOutcomeNotReplicated)) {
    closed.outcome = Status::Ok();
    closed.refused.clear();
    closed.all_joined = false;
  }
  round.Close(Round{h.a}, closed, rows);
  return true;
}

bool BackupSide::ApplyPush(uint32_t local, TableState* table, const wire::OpView& op) {
  const wire::OpHeader& h = op.header;
  SequenceNumbers& numbers = slots_[local].numbers;
  const LiveClient* client = clients_.Find(Incarnation{h.a});
  if (CAIRN_BUG(kNumbersNotReplicated)) client = nullptr;
  const Seq seq{h.b};
  if (client != nullptr && seq <= numbers.last(client->index) && !CAIRN_ANY_BUG) return false;  // used up
  if (h.kind == wire::OpKind::kRefusal) {
    ByteReader in(op.payload);
    const auto code = in.Get<uint8_t>();
    std::string text = in.GetText();
    if (!in.ok() || code == 0 || code > static_cast<uint8_t>(Code::kInternal)) return false;
    if (client != nullptr) numbers.UseRefused(client->index, seq, {static_cast<Code>(code), text});
    return true;
  }
  if (client != nullptr) numbers.Use(client->index, seq);
  if (table == nullptr) return true;  // dropped meanwhile
  table::SlotTable& rows = *table->rows[local];
  const bool assigns = static_cast<PushOp>(op.params.op) != PushOp::kUpdate;
  const Status fits = assigns ? rows.CheckAssign(op.keys, op.payload, op.mask, op.params.column)
                              : rows.Check(op.keys, op.payload, op.mask);
  if (!fits.ok()) return false;
  ApplyPart(rows, op.params, op.keys, op.payload, op.mask);
  return true;
}

// Only where both have applied exactly the same, and have the same tables.
Status BackupSide::CompareHash(uint32_t local, const wire::OpHeader& header) const {
  if (slots_[local].index() != header.index || content_.TablesMark() != header.b) return Status::Ok();
  if (content_.Hash(local) == header.a || CAIRN_BUG(kHashNotCompared)) return Status::Ok();
  context_.Log("ERROR: partition " + std::to_string(slots_[local].id.value) +
               " differs from its primary's at position " + std::to_string(header.epoch) + "." +
               std::to_string(header.index) + ": it is copied anew. Please report this");
  return Refused("its content differs from the primary's");
}

Position BackupSide::Received(uint32_t local) const {
  const Backup& here = backups_[local];
  if (!here.whole) return {};
  return Position::Of(Held(local) > here.received ? here.kept_epoch : here.line_epoch, Held(local));
}

Position BackupSide::Applied(uint32_t local) const {
  const Backup& here = backups_[local];
  return here.whole ? Position::Of(here.line_epoch, slots_[local].index()) : Position{};
}

}  // namespace cairn::server

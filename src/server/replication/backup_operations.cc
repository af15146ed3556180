// The backup's side of replication (docs/internals/consistency.md, rules 40, 42 to 44 and 51): frames of
// operations are taken in order, confirmed on receipt, and applied when they are committed.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

Status ShardImpl::CheckReplicaHello(const wire::ReplicaHello& hello) const {
  if (hello.protocol_min > wire::kProtocolVersion || hello.protocol_max < wire::kProtocolVersion)
    return {Code::kProtocol, "speaks protocol " + std::to_string(wire::kProtocolVersion) +
                                 ", another server another one: use the same release everywhere"};
  if (CAIRN_BUG(kRestartedIsTheSame) && hello.to_incarnation != context_.incarnation()) return Status::Ok();
  if (!context_.registered() || !context_.has_state()) return {Code::kUnavailable, "not registered yet"};
  if (hello.cluster_id != context_.state().cluster_id)
    return {Code::kProtocol, "belongs to cluster " + context_.state().cluster_id + ", not " + hello.cluster_id};
  if (hello.to_incarnation != context_.incarnation() || hello.to_thread != context_.options().thread)
    return {Code::kProtocol, "is thread " + std::to_string(context_.options().thread) + " of incarnation " +
                                 std::to_string(context_.incarnation().value) + ", another one is meant"};
  const wire::ServerInfo* from = context_.state().FindServer(hello.from_server);
  if (from != nullptr && from->incarnation == hello.from_incarnation) return Status::Ok();
  if (hello.from_incarnation >= context_.state().next_incarnation)
    return {Code::kUnavailable, "has not heard of this server yet"};
  if (CAIRN_BUG(kEpochIgnored)) return Status::Ok();
  return {Code::kRetired, "incarnation " + std::to_string(hello.from_incarnation.value) +
                              " was declared dead or has left"};
}

void ShardImpl::OnReplicaHello(ConnId conn, const wire::ReplicaHello& hello) {
  const ReceiverKey key{hello.from_incarnation, hello.from_thread};
  ReplicaSource& source = sources_[key];
  source.server = static_cast<uint16_t>(hello.from_server);
  source.conn = conn;
  source.meant_another = CAIRN_BUG(kRestartedIsTheSame) && hello.to_incarnation != context_.incarnation();
  replica_conns_[conn] = key;
  outbox_.Send(conn, source.receiver.MakeHelloReply(context_.pool()));
  outbox_.Send(conn, source.receiver.MakeAck(context_.version(), context_.pool()));
}

void ShardImpl::OnReplicate(ConnId conn, wire::InFrame& frame) {
  ReplicaSource& source = sources_[replica_conns_.at(conn)];
  source.conn = conn;
  while (source.meant_another && source.receiver.received() + 1 < frame.header.request_id)
    source.receiver.Taken();
  switch (source.receiver.Take(frame.header)) {
    case ReplicaReceiver::Verdict::kNext:
      if (frame.header.state_version > context_.version().value) {
        source.receiver.Hold(frame, context_.options().bounds.most_held_bytes);
      } else {
        TakeOperations(source, frame);
      }
      break;
    case ReplicaReceiver::Verdict::kGap: source.receiver.Hold(frame, context_.options().bounds.most_held_bytes); break;
    case ReplicaReceiver::Verdict::kDuplicate: break;
  }
  TakeHeldFrames(source);
}

void ShardImpl::TakeHeldFrames(ReplicaSource& source) {
  while (auto frame = source.receiver.NextHeld(context_.version())) TakeOperations(source, *frame);
  if (source.conn != ConnId{}) outbox_.Send(source.conn, source.receiver.MakeAck(context_.version(), context_.pool()));
}

void ShardImpl::TakeOperations(ReplicaSource& source, const wire::InFrame& frame) {
  // It is not damaged (it has passed its checksum, or came from this host): from another release, or a bug.
  if (Status bad = wire::CheckOps(frame.body()); !bad.ok())
    return context_.Log("server " + std::to_string(source.server) + " sent what can't be read: " + bad.message());
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
    const bool newer = slot.value < context_.state().slots.size() && context_.state().slots[slot.value].epoch > op.header.epoch;
    if (newer && CAIRN_BUG(kEpochIgnored)) continue;
    if (!newer && local != OwnedSlots::kNotHere && slots_[local].role == OwnedSlot::Role::kBackup) {
      const bool was_whole = std::exchange(slots_[local].whole, false);
      slots_[local].copying = false;
      if (was_whole)
        context_.Log("partition " + std::to_string(slot.value) + " has to be copied here again: " + taken.message());
    }
    source.receiver.Refuse(slot, newer ? context_.state().slots[slot.value].epoch : op.header.epoch);
  }
  source.receiver.Taken();
}

Status ShardImpl::TakeOperation(uint16_t from, const wire::OpView& op) {
  const wire::OpHeader& h = op.header;
  const uint32_t local = slots_.LocalOfAny(h.slot);
  const auto refuse = [](std::string why) { return Status(Code::kUnavailable, std::move(why)); };
  if (local == OwnedSlots::kNotHere || slots_[local].role != OwnedSlot::Role::kBackup)
    return refuse("not a backup of it");
  OwnedSlot& slot = slots_[local];
  if (h.index > Position::kMaxIndex || h.epoch > Position::kMaxEpoch) return refuse("no position is so far");
  const bool theirs = context_.state().slots[h.slot].server == from && h.epoch == slot.epoch();
  if (!theirs) return refuse("it has another primary");
  switch (h.kind) {
    case wire::OpKind::kBegin:
      if (h.a != slot.added.value) return refuse("the copy is for an earlier backup");
      ClearSlot(local);
      slot.copying = true;
      slot.received = h.index;
      slot.line_epoch = h.epoch;
      return Status::Ok();
    case wire::OpKind::kChunk:
      if (!slot.copying || h.a != slot.chunks) return refuse("a piece of the copy is missing");
      ++slot.chunks;
      slot.copy.PutRaw(op.payload);
      return Status::Ok();
    case wire::OpKind::kEnd: return EndCopy(local, op);
    case wire::OpKind::kContinue: return ContinueUnder(slot, h);
    default: break;
  }
  if (!slot.whole && !slot.copying) return refuse("the copy is not whole");
  if (slot.line_epoch != h.epoch) return refuse("its new primary has not begun");
  if (h.kind == wire::OpKind::kHash) {
    if (slot.whole && !ApplyTail(local, std::min(h.committed, slot.received))) return refuse("an operation does not fit");
    return CompareHash(slot, h);
  }
  if (h.kind != wire::OpKind::kCommit) {
    if (h.index > slot.received + 1) return refuse("operations are missing");
    if (h.index == slot.received + 1) {
      const bool kept = slot.whole && Keeps(slot, op);
      slot.received = h.index;
      if (kept) {
        // It stays where it is.
      } else if (slot.whole && slot.tail.empty() && (h.committed >= h.index || CAIRN_BUG(kApplyUncommitted))) {
        if (!ApplyOperation(local, op)) return refuse("an operation does not fit");
      } else if (slot.whole || !CAIRN_BUG(kCopyTailDropped)) {
        slot.tail.emplace_back(op.raw.begin(), op.raw.end());
        tail_bytes_ += op.raw.size();
      }
    }
  }
  if (!slot.whole) return Status::Ok();  // the rest of the copy comes first
  return ApplyTail(local, std::min(h.committed, slot.received)) ? Status::Ok() : refuse("an operation does not fit");
}

Status ShardImpl::EndCopy(uint32_t local, const wire::OpView& op) {
  OwnedSlot& slot = slots_[local];
  if (!slot.copying || op.header.a != slot.chunks) return {Code::kUnavailable, "a piece of the copy is missing"};
  const std::vector<std::byte> content = slot.copy.Take();
  slot.copying = false;
  if (!content_.Load(local, content)) return {Code::kUnavailable, "the copy can't be read"};
  slot.StartAt(op.header.index);
  slot.whole = true;
  if (!ApplyTail(local, op.header.committed)) return {Code::kUnavailable, "an operation does not fit"};
  return Status::Ok();
}

Status ShardImpl::ContinueUnder(OwnedSlot& slot, const wire::OpHeader& header) {
  if (!slot.whole) return {Code::kUnavailable, "the copy is not whole"};
  if (slot.index() > header.index) return {Code::kUnavailable, "it has operations that its new primary has not"};
  // What is committed is the same everywhere. All above comes anew, and may be something else: another
  // primary in between may have told this one something that it told nobody else. Until it comes, what is
  // here is kept: it may be acknowledged, and this primary may die before it has sent it again.
  if (slot.held() <= slot.received) slot.kept_epoch = slot.line_epoch;
  slot.received = std::min(slot.received, std::max(slot.index(), header.committed));
  const uint64_t kept = CAIRN_BUG(kTailForgotten) ? slot.received : std::max(header.index, slot.received);
  while (slot.held() > kept) PopTail(slot);
  if (slot.received < header.a)
    return {Code::kUnavailable, "its primary can't send again what is missing"};
  slot.line_epoch = header.epoch;
  return Status::Ok();
}

// Nothing of the slot is here any more; its tables are there, to be loaded into.
void ShardImpl::ClearSlot(uint32_t local) {
  OwnedSlot& slot = slots_[local];
  slot.received = 0;
  for (const auto& raw : slot.tail) tail_bytes_ -= raw.size();
  slot.tail.clear();
  slot.copy.Take();
  slot.copying = slot.whole = false;
  slot.chunks = 0;
  content_.Clear(local);
}

void ShardImpl::PopTail(OwnedSlot& slot) {
  tail_bytes_ -= slot.tail.back().size();
  slot.tail.pop_back();
}

// True if an earlier primary has sent the same operation. If it was another one, all behind it was another
// line of operations, of which nothing can have been committed.
bool ShardImpl::Keeps(OwnedSlot& slot, const wire::OpView& op) {
  if (slot.held() < op.header.index) return false;
  if (wire::SameOperation(slot.tail[op.header.index - slot.index() - 1], op.raw)) return true;
  while (slot.held() >= op.header.index) PopTail(slot);
  return false;
}

// All of the tail up to this index; false if something is not what an operation is.
bool ShardImpl::ApplyTail(uint32_t local, uint64_t committed) {
  OwnedSlot& slot = slots_[local];
  while (!slot.tail.empty() && slot.index() < committed) {
    const std::vector<std::byte> raw = std::move(slot.tail.front());
    slot.tail.pop_front();
    tail_bytes_ -= raw.size();
    const auto op = wire::ParseOp(raw);
    if (!op.ok() || !ApplyOperation(local, *op)) return false;
  }
  return true;
}

bool ShardImpl::ApplyOperation(uint32_t local, const wire::OpView& op) {
  OwnedSlot& slot = slots_[local];
  const wire::OpHeader& h = op.header;
  if (h.index <= slot.index()) return false;
  slot.ApplyUpTo(h.index);
  TableState* table = tables_.Find(TableId{h.table});
  if (h.kind == wire::OpKind::kPush || h.kind == wire::OpKind::kRefusal) return ApplyPush(slot, table, op);
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
  SlotRound::Closed closed;
  if (!LoadClosed(in, &closed)) return false;
  if (in.Get<uint8_t>() != 0) {
    if (rows.staged()) rows.DropStaged();
    if (!rows.LoadStaged(in)) return false;
  }
  if (closed.effect != SlotRound::Effect::kNothing && !rows.staged()) return false;
  if (CAIRN_BUG(kOutcomeNotReplicated)) {
    closed.outcome = Status::Ok();
    closed.refused.clear();
    closed.all_joined = false;
  }
  round.Close(Round{h.a}, closed, rows);
  return true;
}

bool ShardImpl::ApplyPush(OwnedSlot& slot, TableState* table, const wire::OpView& op) {
  const wire::OpHeader& h = op.header;
  const LiveClient* client = clients_.Find(Incarnation{h.a});
  if (CAIRN_BUG(kNumbersNotReplicated)) client = nullptr;
  if (h.kind == wire::OpKind::kRefusal) {
    ByteReader in(op.payload);
    const auto code = in.Get<uint8_t>();
    std::string text = in.GetText();
    if (!in.ok() || code == 0 || code > static_cast<uint8_t>(Code::kInternal)) return false;
    if (client != nullptr) slot.numbers.UseRefused(client->index, Seq{h.b}, {static_cast<Code>(code), text});
    return true;
  }
  if (client != nullptr) slot.numbers.Use(client->index, Seq{h.b});
  if (table == nullptr) return true;  // dropped meanwhile
  table::SlotTable& rows = *table->rows[slots_.LocalOfAny(h.slot)];
  const bool assigns = static_cast<PushOp>(op.params.op) != PushOp::kUpdate;
  const Status fits = assigns ? rows.CheckAssign(op.keys, op.payload, op.mask, op.params.column)
                              : rows.Check(op.keys, op.payload, op.mask);
  if (!fits.ok()) return false;
  ApplyPart(rows, op.params, op.keys, op.payload, op.mask);
  return true;
}

// Only where both have applied exactly the same, and have the same tables.
Status ShardImpl::CompareHash(const OwnedSlot& slot, const wire::OpHeader& header) {
  if (slot.index() != header.index || content_.TablesMark() != header.b) return Status::Ok();
  if (content_.Hash(slots_.LocalOfAny(slot.id.value)) == header.a || CAIRN_BUG(kHashNotCompared)) return Status::Ok();
  context_.Log("ERROR: partition " + std::to_string(slot.id.value) + " differs from its primary's at position " +
      std::to_string(header.epoch) + "." + std::to_string(header.index) + ": it is copied anew. Please report this");
  return {Code::kUnavailable, "its content differs from the primary's"};
}

}  // namespace cairn::server

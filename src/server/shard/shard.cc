// Frames in: handshake, fencing, dispatch (docs/internals/consistency.md, rules 11 and 12), and what a shard
// tells about itself.
#include "server/shard/shard.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/planted.h"
#include "server/shard/request_size.h"
#include "server/shard/shard_impl.h"
#include "wire/state_exchange.h"

namespace cairn::server {
std::unique_ptr<Shard> Shard::Make(const ShardOptions& options, Network& network, BufferPool& pool,
                                   ShardObserver* observer) {
  return std::make_unique<ShardImpl>(options, network, pool, observer);
}

void ShardImpl::OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) {
  context_.NoteTime(now_us);
  stats_.bytes_in += sizeof(frame.header) + frame.storage.size();
  Dispatch(conn, frame, now_us);
  primary_side_.Flush();
}

void ShardImpl::OnConnected(ConnId conn, int64_t now_us) {
  context_.NoteTime(now_us);
  if (ReplicaSender* sender = primary_side_.backups().SenderOn(conn)) sender->OnConnected(now_us);
}

void ShardImpl::Dispatch(ConnId conn, wire::InFrame& frame, int64_t now_us) {
  const wire::FrameHeader& header = frame.header;
  if (ReplicaSender* sender = primary_side_.backups().SenderOn(conn)) return sender->OnMessage(frame, now_us);
  if (header.type == wire::FrameType::kControl) return OnControl(conn, frame);
  if (header.type == wire::FrameType::kReplicate && backup_side_.Knows(conn))
    return backup_side_.OnFrame(conn, frame);

  auto known = connections_.find(conn);
  if (known == connections_.end()) {
    outbox_.Send(conn, wire::EncodeControl(wire::Refusal{header.request_id, Code::kProtocol,
                                                 context_.name() + ": a data connection starts with Hello"},
                                   context_.pool()));
    network_.Close(conn);
    return;
  }
  if (known->second.value != header.incarnation) {
    return Violation(
        conn, header,
        {Code::kProtocol, "frame of incarnation " + std::to_string(header.incarnation) +
                              " on a connection of incarnation " + std::to_string(known->second.value)});
  }
  const LiveClient* client = nullptr;
  if (Status fenced = Fence(header, &client); !fenced.ok()) {
    TellFenced(frame, fenced);
    return outbox_.SendError(conn, header, fenced);
  }
  if ((header.flags & wire::kFlagTrip) != 0) ++stats_.round_trips;
  const Request request{conn, client, frame, now_us};
  switch (header.type) {
    case wire::FrameType::kPush: return OnPush(request);
    case wire::FrameType::kContribute:
    case wire::FrameType::kDone: return OnRoundFrame(request);
    case wire::FrameType::kPull: return OnPull(request);
    default:
      return Violation(conn, header,
                       {Code::kProtocol, "frame type " + std::to_string(static_cast<int>(header.type)) +
                                             " is not for a server"});
  }
}

void ShardImpl::OnControl(ConnId conn, const wire::InFrame& frame) {
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  const wire::Hello* hello = message.ok() ? std::get_if<wire::Hello>(&*message) : nullptr;
  const auto* replica = message.ok() ? std::get_if<wire::ReplicaHello>(&*message) : nullptr;
  Status problem;
  if (message.ok() && connections_.contains(conn) && ComparesStates(conn, *message)) return;
  if (!message.ok()) {
    problem = message.status();
  } else if (replica != nullptr) {
    problem = backup_side_.CheckHello(*replica);
    if (problem.ok()) return backup_side_.OnHello(conn, *replica);
  } else if (hello == nullptr) {
    problem = {Code::kProtocol, std::string(wire::Name(*message)) + " is not for a shard"};
  } else {
    problem = CheckHello(*hello);
  }
  if (problem.ok()) {
    connections_[conn] = hello->incarnation;
    outbox_.Send(conn, wire::EncodeControl(wire::HelloReply{wire::kProtocolVersion, context_.version()}, context_.pool()));
    return;
  }
  outbox_.Send(conn, wire::EncodeControl(wire::Refusal{frame.header.request_id, problem.code(),
                                               context_.name() + ": " + problem.message()},
                                 context_.pool()));
  if (problem.code() == Code::kProtocol) {
    OnDisconnect(conn, 0);
    network_.Close(conn);
  }
}

// True if the message was about the cluster's state. Whatever a worker has was told by a scheduler, so it
// is durable; the server's control side takes it for all shards.
bool ShardImpl::ComparesStates(ConnId conn, wire::ControlMessage& message) {
  if (const auto* at = std::get_if<wire::StateAt>(&message)) {
    if (CAIRN_BUG(kStatesNotPassed)) return true;
    if (auto answer = wire::AnswerTo(*at, context_.state())) outbox_.Send(conn, wire::EncodeControl(*answer, context_.pool()));
    return true;
  }
  auto* passed = std::get_if<wire::StateMessage>(&message);
  if (passed == nullptr) return false;
  const StateVersion newest = passed_state_ ? passed_state_->version : context_.version();
  const bool same_slots = context_.state().slots.empty() || passed->state.slots.size() == context_.state().slots.size();
  if (passed->state.version <= newest || !same_slots) return true;
  passed_state_ = std::make_shared<const wire::ClusterState>(std::move(passed->state));
  news_.Raise();
  return true;
}

Status ShardImpl::CheckHello(const wire::Hello& hello) const {
  if (hello.protocol_min > wire::kProtocolVersion || hello.protocol_max < wire::kProtocolVersion) {
    return {Code::kProtocol, "speaks protocol " + std::to_string(wire::kProtocolVersion) + ", the worker " +
                                 std::to_string(hello.protocol_min) + " to " +
                                 std::to_string(hello.protocol_max) + ": use the same release everywhere"};
  }
  if (!context_.registered() || !context_.has_state()) return {Code::kUnavailable, "not registered yet"};
  if (!hello.cluster_id.empty() && hello.cluster_id != context_.state().cluster_id) {
    return {Code::kProtocol,
            "belongs to cluster " + context_.state().cluster_id + ", the worker to " + hello.cluster_id};
  }
  if (hello.server_incarnation != context_.incarnation() || hello.thread != context_.options().thread) {
    return {Code::kProtocol, "is thread " + std::to_string(context_.options().thread) + " of incarnation " +
                                 std::to_string(context_.incarnation().value) + ", the worker asks for thread " +
                                 std::to_string(hello.thread) + " of incarnation " +
                                 std::to_string(hello.server_incarnation.value)};
  }
  if (clients_.Find(hello.incarnation) != nullptr) return Status::Ok();
  if (hello.incarnation >= context_.state().next_incarnation)
    return {Code::kUnavailable, "has not heard of this worker yet"};
  return {Code::kRetired, "incarnation " + std::to_string(hello.incarnation.value) +
                              " has left or was declared dead: restart the process"};
}

Status ShardImpl::Fence(const wire::FrameHeader& header, const LiveClient** client) {
  if (!context_.has_state()) return {Code::kUnavailable, context_.name() + " has no state yet"};
  if (context_.state().phase == wire::Phase::kFailed) return context_.EndOfJob();
  const Incarnation incarnation{header.incarnation};
  *client = clients_.Find(incarnation);
  if (*client == nullptr && incarnation >= context_.state().next_incarnation)
    return {Code::kUnavailable, context_.name() + " has not heard of this worker yet"};
  if (*client == nullptr && CAIRN_BUG(kForgetWatermark) && header.type == wire::FrameType::kPush)
    *client = clients_.Admit(incarnation);
  if (*client == nullptr) {
    return {Code::kRetired, "incarnation " + std::to_string(incarnation.value) +
                                " has left or was declared dead: restart the process"};
  }
  if (header.state_version > context_.version().value) {
    return {Code::kUnavailable, context_.name() + " has state " + std::to_string(context_.version().value) +
                                    ", the frame was made under " + std::to_string(header.state_version)};
  }
  return context_.EndOfJob();
}

void ShardImpl::TellFenced(const wire::InFrame& frame, const Status& why) {
  const wire::FrameHeader& header = frame.header;
  if (context_.observer() == nullptr || why.code() != Code::kRetired || header.type != wire::FrameType::kPush) return;
  Result<wire::PushView> push = wire::DecodePush(header, frame.body());
  if (!push.ok()) return;
  for (const wire::SlotEntry& entry : push->entries) {
    context_.observer()->OnPush(SlotId{entry.slot}, Incarnation{header.incarnation}, Seq{entry.number},
                      TableId{header.table}, Outcome::kRetired, why.code(), {}, {}, push->params.hyper(),
                      Position{});
  }
}

void ShardImpl::OnDisconnect(ConnId conn, int64_t now_us) {
  if (ReplicaSender* sender = primary_side_.backups().SenderOn(conn)) return sender->OnDisconnect(now_us);
  if (backup_side_.Knows(conn)) return backup_side_.OnDisconnect(conn);
  connections_.erase(conn);
  parked_.ForgetConnection(conn);
  gate_.Forget(conn);
}

void ShardImpl::OnTick(int64_t now_us) {
  context_.NoteTime(now_us);
  TellStillWaiting(now_us);
  gate_.TellWaiting();
  roles_.WatchPositions();
  tables_.AgeHotRows();
  primary_side_.OnTick();
}

uint32_t ShardImpl::WaitsAt(const TableState& table, const ParkedRequest& request) const {
  if (!request.every_slot) return slots_.LocalOf(request.entries[request.next].slot);
  uint32_t local = 0;
  while (!slots_[local].primary() || Reached(table.rounds[local], request)) ++local;
  return local;
}

void ShardImpl::TellStillWaiting(int64_t now_us) {
  for (auto& [id, request] : parked_.all()) {
    if (request.conn == ConnId{} || now_us - request.told_us < context_.options().still_waiting_us) continue;
    request.told_us = now_us;
    const TableState& table = tables_.all().at(TableId{request.header.table});
    const uint32_t local = WaitsAt(table, request);
    const SlotRound& round = table.rounds[local];
    outbox_.Send(request.conn,
         wire::EncodeControl(wire::StillWaiting{request.header.request_id, table.info.id, round.open(),
                                                round.MissingRanks(slots_[local].id, table.rounds.marks())},
                             context_.pool()));
  }
}

void ShardImpl::Violation(ConnId conn, const wire::FrameHeader& request, const Status& error) {
  outbox_.SendError(conn, request, error.With(context_.name()));
  OnDisconnect(conn, 0);
  network_.Close(conn);
}

uint64_t ShardImpl::MostBodyBytes(const wire::FrameHeader& header) const {
  return MostRequestBytes(header, tables_.SpecOf(TableId{header.table}), slots_.slot_count());
}

uint64_t ShardImpl::MostAnswerBytes(const wire::FrameHeader& header) const {
  return MostBackupAnswerBytes(header, slots_.slot_count());
}

wire::NodeStats ShardImpl::stats() const {
  wire::NodeStats stats = stats_;
  stats.bytes_out = outbox_.bytes_sent();
  stats.connections = connections_.size();
  const RowWeights& weights = tables_.Weigh();
  stats.rows = weights.rows();
  stats.memory_bytes = weights.memory_bytes();
  stats.dense_bytes = weights.dense_bytes();
  stats.replicated_bytes += primary_side_.backups().sent_bytes();
  stats.unconfirmed_bytes += primary_side_.backups().unconfirmed_bytes();
  return stats;
}

Shard::SlotRole ShardImpl::RoleOf(SlotId slot) const {
  const uint32_t local = slots_.LocalOfAny(slot.value);
  return local == OwnedSlots::kNotHere ? SlotRole::kNone : slots_[local].role;
}

Position ShardImpl::Received(SlotId slot) const {
  const uint32_t local = slots_.LocalOfAny(slot.value);
  if (RoleOf(slot) == SlotRole::kNone) return {};
  return slots_[local].primary() ? slots_[local].position() : backup_side_.Received(local);
}

Position ShardImpl::Applied(SlotId slot) const {
  const uint32_t local = slots_.LocalOfAny(slot.value);
  if (RoleOf(slot) == SlotRole::kNone) return {};
  return slots_[local].primary() ? slots_[local].position() : backup_side_.Applied(local);
}

bool ShardImpl::WaitsFor(SlotId slot, uint32_t server) const {
  if (RoleOf(slot) != SlotRole::kPrimary) return false;
  return primary_side_.backups().WaitsFor(slots_.LocalOfAny(slot.value), server);
}

Shard::HighWater ShardImpl::high_water() const {
  return {primary_side_.backups().unconfirmed_bytes(), backup_side_.tail_bytes(), gate_.held()};
}

uint64_t ShardImpl::ContentHash(SlotId slot) const { return content_.Hash(slots_.LocalOfAny(slot.value)); }

Seq ShardImpl::LastSeq(SlotId slot, Incarnation incarnation) const {
  const uint32_t local = slots_.LocalOfAny(slot.value);
  const LiveClient* client = clients_.Find(incarnation);
  if (RoleOf(slot) == SlotRole::kNone || client == nullptr) return Seq{0};
  return slots_[local].numbers.last(client->index);
}

std::vector<Shard::Refusal> ShardImpl::RefusalsOf(SlotId slot, Incarnation incarnation) const {
  std::vector<Refusal> refusals;
  const uint32_t local = slots_.LocalOfAny(slot.value);
  const LiveClient* client = clients_.Find(incarnation);
  if (RoleOf(slot) == SlotRole::kNone || client == nullptr) return refusals;
  slots_[local].numbers.ForEachRefusal(
      client->index, [&](Seq seq, const Status& why) { refusals.push_back({seq, why}); });
  return refusals;
}

Round ShardImpl::OpenRound(TableId id, SlotId slot) const {
  const TableState* table = tables_.Find(id);
  if (table == nullptr || !table->sync() || RoleOf(slot) == SlotRole::kNone) return Round{0};
  return table->rounds[slots_.LocalOfAny(slot.value)].open();
}

void ShardImpl::ForEachRow(TableId id, SlotId slot,
                           const std::function<void(RowKey, std::span<const std::byte>)>& row) const {
  const TableState* table = tables_.Find(id);
  if (table == nullptr || RoleOf(slot) == SlotRole::kNone) return;
  table->rows[slots_.LocalOfAny(slot.value)]->ForEach(row);
}

bool IsHelloReply(const wire::Frame& frame) {
  if (frame.header().type != wire::FrameType::kControl) return false;
  const auto message =
      wire::DecodeControl(frame.header(), frame.head.bytes().subspan(sizeof(wire::FrameHeader)));
  return message.ok() && (std::holds_alternative<wire::HelloReply>(*message) ||
                          std::holds_alternative<wire::ReplicaHelloReply>(*message));
}

}  // namespace cairn::server

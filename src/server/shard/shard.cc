// The shard: it brings its parts together, gives each event to those whose business it is, in order, and
// tells what they know. Nothing here blocks or allocates per slot or key on the paths of pushes and pulls.
#include "server/shard/shard.h"

#include <utility>
#include <variant>

#include "base/planted.h"
#include "server/pull/clock_waits.h"
#include "server/pull/pulls.h"
#include "server/pull/round_waits.h"
#include "server/pull/slot_reader.h"
#include "server/push/push_admission.h"
#include "server/replication/backup_side.h"
#include "server/replication/commit_gate.h"
#include "server/replication/primary_side.h"
#include "server/replication/slot_content.h"
#include "server/round/round_engine.h"
#include "server/round/view_hold.h"
#include "server/shard/inspection.h"
#include "server/shard/request_size.h"
#include "server/shard/slot_roles.h"
#include "server/shard/worker_connections.h"
#include "server/slots/live_clients.h"
#include "server/slots/news_flag.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/refusal_texts.h"
#include "server/slots/request.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"

namespace cairn::server {
namespace {

class ShardImpl final : public Shard, private PrimarySide::Listener {
 public:
  ShardImpl(const ShardOptions& options, Network& network, BufferPool& pool, ShardObserver* observer)
      : context_(options, pool, observer),
        outbox_(context_, network),
        tables_(context_, slots_),
        content_(context_, clients_, slots_, tables_),
        connections_(context_, outbox_, clients_, news_),
        primary_side_(context_, network, slots_, content_, news_, *this),
        backup_side_(context_, outbox_, clients_, slots_, tables_, content_),
        roles_(context_, slots_, primary_side_, backup_side_, news_),
        gate_(context_, slots_, primary_side_.backups(), outbox_),
        reader_(context_, outbox_, slots_, gate_),
        waits_(context_, outbox_, slots_, tables_, gate_, reader_),
        clock_waits_(context_, outbox_, tables_, reader_),
        rounds_(context_, outbox_, slots_, tables_, primary_side_, waits_),
        hold_(context_, slots_, tables_),
        pushes_(context_, outbox_, slots_, tables_, primary_side_, gate_),
        pulls_(context_, outbox_, slots_, tables_, reader_, waits_, clock_waits_),
        inspection_(clients_, slots_, tables_, primary_side_, backup_side_, gate_) {}

  void OnRegistered(uint32_t server_index, Incarnation incarnation) override;
  void OnState(std::shared_ptr<const wire::ClusterState> state, int64_t now_us) override;
  void OnConnected(ConnId conn, int64_t now_us) override;
  void OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) override;
  void OnDisconnect(ConnId conn, int64_t now_us) override;
  void OnTick(int64_t now_us) override;
  uint64_t MostBodyBytes(const wire::FrameHeader& header) const override;
  uint64_t MostAnswerBytes(const wire::FrameHeader& header) const override;

  StateVersion version() const override { return context_.version(); }
  ViewNumber hold_view() const override { return hold_.view(); }
  std::vector<wire::TableRound> hold_rounds() const override { return hold_.rounds(); }
  bool TakeNewsFlag() override { return news_.Take(); }
  std::vector<wire::SlotNews> news() const override { return primary_side_.news(); }
  std::vector<wire::SlotLoad> loads() const override { return tables_.loads(); }
  HotReport hot_rows() const override { return tables_.hot_rows(); }
  uint64_t reusable_bytes() const override { return tables_.reusable_bytes(); }
  std::vector<wire::StalledRound> stalled() const override;
  ShardContext::StatePtr passed_state() const override { return connections_.passed_state(); }
  wire::NodeStats stats() const override;

  SlotRole RoleOf(SlotId slot) const override { return slots_.RoleOf(slot); }
  Position Received(SlotId slot) const override { return inspection_.Received(slot); }
  Position Applied(SlotId slot) const override { return inspection_.Applied(slot); }
  uint64_t ContentHash(SlotId slot) const override { return content_.Hash(slots_.LocalOfAny(slot.value)); }
  bool WaitsFor(SlotId slot, uint32_t server) const override { return inspection_.WaitsFor(slot, server); }
  HighWater high_water() const override { return inspection_.high_water(); }
  uint64_t early_bytes() const override { return tables_.early_bytes(); }
  uint64_t looks_at_rows() const override { return tables_.looks_at_rows(); }
  Seq LastSeq(SlotId slot, Incarnation of) const override { return inspection_.LastSeq(slot, of); }
  std::vector<Refusal> RefusalsOf(SlotId slot, Incarnation of) const override {
    return inspection_.RefusalsOf(slot, of);
  }
  Round OpenRound(TableId table, SlotId slot) const override { return inspection_.OpenRound(table, slot); }
  void ForEachRow(TableId table, SlotId slot,
                  const std::function<void(RowKey, std::span<const std::byte>)>& row) const override {
    inspection_.ForEachRow(table, slot, row);
  }

 private:
  void OnConfirmed(const BackupStream& stream) override { gate_.OnConfirmed(stream); }
  void OnStreamGone(const BackupStream& stream) override { gate_.OnStreamGone(stream); }

  void Dispatch(ConnId conn, wire::InFrame& frame);
  void OnControl(ConnId conn, const wire::InFrame& frame);
  Status OnRequest(const Request& request);
  void UpdateClients();
  void AnswerWaiting(const Status& error);

  ShardContext context_;
  Outbox outbox_;
  NewsFlag news_;
  LiveClients clients_;
  OwnedSlots slots_;
  Tables tables_;
  SlotContent content_;
  WorkerConnections connections_;
  PrimarySide primary_side_;
  BackupSide backup_side_;
  SlotRoles roles_;
  CommitGate gate_;
  SlotReader reader_;
  RoundWaits waits_;
  ClockWaits clock_waits_;
  RoundEngine rounds_;
  ViewHold hold_;
  PushAdmission pushes_;
  Pulls pulls_;
  Inspection inspection_;
  uint64_t bytes_in_ = 0, round_trips_ = 0;
};

void ShardImpl::OnRegistered(uint32_t server_index, Incarnation incarnation) {
  if (context_.registered()) return;
  context_.Register(server_index, incarnation);
  if (!context_.has_state()) return;
  // The state came first: only now is it known which slots are ours.
  hold_.Forget();
  OnState(context_.ForgetState(), 0);
}

void ShardImpl::OnState(ShardContext::StatePtr state, int64_t now_us) {
  if (context_.has_state() && state->version <= context_.version()) return;
  const ShardContext::StatePtr before = context_.TakeState(std::move(state));
  connections_.OnState();
  if (now_us > context_.now_us()) context_.NoteTime(now_us);
  // A request may wait at a slot that moves away; its client finds the new owner.
  if (context_.registered() && roles_.Update())
    AnswerWaiting({Code::kUnavailable, context_.name() + " is no longer the owner of some slots"});
  UpdateClients();
  for (TableId dropped : tables_.Update(before.get())) {
    waits_.AnswerTable(dropped, DroppedTable(dropped));
    clock_waits_.AnswerTable(dropped, DroppedTable(dropped));
  }
  hold_.Update();
  primary_side_.OnState();
  gate_.OnState();
  if (Status end = context_.EndOfJob(); !end.ok()) return AnswerWaiting(end);
  rounds_.OnState();
  clock_waits_.OnState();
  backup_side_.OnState();
  primary_side_.Flush();
  news_.Raise();
}

void ShardImpl::UpdateClients() {
  for (const LiveClient& gone : clients_.Update(context_.state())) {
    if (!CAIRN_BUG(kDeathNotFenced)) slots_.Forget(gone.index);
    waits_.ForgetClient(gone.incarnation);
    clock_waits_.ForgetClient(gone.incarnation);
    if (context_.observer() != nullptr) context_.observer()->OnRetired(gone.incarnation);
  }
}

// For good.
void ShardImpl::AnswerWaiting(const Status& error) {
  waits_.AnswerAll(error);
  clock_waits_.AnswerAll(error);
}

void ShardImpl::OnConnected(ConnId conn, int64_t now_us) {
  context_.NoteTime(now_us);
  if (ReplicaSender* sender = primary_side_.backups().SenderOn(conn)) sender->OnConnected(now_us);
}

void ShardImpl::OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) {
  context_.NoteTime(now_us);
  bytes_in_ += sizeof(frame.header) + frame.storage.size();
  Dispatch(conn, frame);
  primary_side_.Flush();
}

void ShardImpl::Dispatch(ConnId conn, wire::InFrame& frame) {
  const wire::FrameHeader& header = frame.header;
  if (ReplicaSender* sender = primary_side_.backups().SenderOn(conn))
    return sender->OnMessage(frame, context_.now_us());
  if (header.type == wire::FrameType::kControl) return OnControl(conn, frame);
  if (header.type == wire::FrameType::kReplicate && backup_side_.Knows(conn))
    return backup_side_.OnFrame(conn, frame);

  const Incarnation* const known = connections_.Find(conn);
  if (known == nullptr) {
    const wire::Refusal refusal{header.request_id, Code::kProtocol,
                                context_.name() + ": a data connection starts with Hello"};
    outbox_.Send(conn, wire::EncodeControl(refusal, context_.pool()));
    return outbox_.Close(conn);
  }
  Status violation;
  if (known->value == header.incarnation) {
    const LiveClient* client = nullptr;
    if (Status fenced = connections_.Fence(frame, &client); !fenced.ok())
      return outbox_.SendError(conn, header, fenced);
    if ((header.flags & wire::kFlagTrip) != 0) ++round_trips_;
    violation = OnRequest({conn, client, frame});
  } else {
    violation = {Code::kProtocol, "frame of incarnation " + std::to_string(header.incarnation) +
                                      " on a connection of incarnation " + std::to_string(known->value)};
  }
  if (violation.ok()) return;
  outbox_.SendError(conn, header, violation.With(context_.name()));
  OnDisconnect(conn, 0);
  outbox_.Close(conn);
}

Status ShardImpl::OnRequest(const Request& request) {
  switch (request.header().type) {
    case wire::FrameType::kPush: return pushes_.OnPush(request);
    case wire::FrameType::kContribute:
    case wire::FrameType::kDone: return rounds_.OnFrame(request);
    case wire::FrameType::kClock: clock_waits_.OnClock(request); return Status::Ok();
    case wire::FrameType::kPull: return pulls_.OnPull(request);
    default:
      return {Code::kProtocol, "frame type " + std::to_string(static_cast<int>(request.header().type)) +
                                   " is not for a server"};
  }
}

void ShardImpl::OnControl(ConnId conn, const wire::InFrame& frame) {
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  Status problem = message.status();
  if (message.ok()) {
    if (connections_.Find(conn) != nullptr && connections_.ComparesStates(conn, *message)) return;
    if (const auto* replica = std::get_if<wire::ReplicaHello>(&*message)) {
      problem = backup_side_.CheckHello(*replica);
      if (problem.ok()) return backup_side_.OnHello(conn, *replica);
    } else if (const auto* hello = std::get_if<wire::Hello>(&*message)) {
      problem = connections_.OnHello(conn, *hello);
      if (problem.ok()) return;
    } else {
      problem = {Code::kProtocol, std::string(wire::Name(*message)) + " is not for a shard"};
    }
  }
  const wire::Refusal refusal{frame.header.request_id, problem.code(),
                              context_.name() + ": " + problem.message()};
  outbox_.Send(conn, wire::EncodeControl(refusal, context_.pool()));
  if (problem.code() != Code::kProtocol) return;
  OnDisconnect(conn, 0);
  outbox_.Close(conn);
}

void ShardImpl::OnDisconnect(ConnId conn, int64_t now_us) {
  if (ReplicaSender* sender = primary_side_.backups().SenderOn(conn)) return sender->OnDisconnect(now_us);
  if (backup_side_.Knows(conn)) return backup_side_.OnDisconnect(conn);
  connections_.Forget(conn);
  waits_.ForgetConnection(conn);
  clock_waits_.ForgetConnection(conn);
  gate_.Forget(conn);
}

void ShardImpl::OnTick(int64_t now_us) {
  context_.NoteTime(now_us);
  waits_.TellWaiting();
  clock_waits_.TellWaiting();
  gate_.TellWaiting();
  roles_.WatchPositions();
  tables_.AgeHotRows();
  primary_side_.OnTick();
}

uint64_t ShardImpl::MostBodyBytes(const wire::FrameHeader& header) const {
  return MostRequestBytes(header, tables_.SpecOf(TableId{header.table}), slots_.slot_count());
}

uint64_t ShardImpl::MostAnswerBytes(const wire::FrameHeader& header) const {
  return MostBackupAnswerBytes(header, slots_.slot_count());
}

std::vector<wire::StalledRound> ShardImpl::stalled() const {
  std::vector<wire::StalledRound> all = waits_.stalled();
  for (wire::StalledRound& one : clock_waits_.stalled()) wire::AddStalled(all, std::move(one));
  return all;
}

wire::NodeStats ShardImpl::stats() const {
  wire::NodeStats stats;
  stats.pushes = pushes_.pushes();
  stats.pulls = pulls_.pulls();
  stats.rounds = rounds_.rounds();
  stats.bytes_in = bytes_in_;
  stats.bytes_out = outbox_.bytes_sent();
  stats.round_trips = round_trips_;
  stats.connections = connections_.size();
  const RowWeights& weights = tables_.Weigh();
  stats.rows = weights.rows();
  stats.memory_bytes = weights.memory_bytes();
  stats.dense_bytes = weights.dense_bytes();
  stats.replicated_bytes = primary_side_.backups().sent_bytes();
  stats.unconfirmed_bytes = primary_side_.backups().unconfirmed_bytes();
  return stats;
}

}  // namespace

std::unique_ptr<Shard> Shard::Make(const ShardOptions& options, Network& network, BufferPool& pool,
                                   ShardObserver* observer) {
  return std::make_unique<ShardImpl>(options, network, pool, observer);
}

bool IsHelloReply(const wire::Frame& frame) {
  if (frame.header().type != wire::FrameType::kControl) return false;
  const auto message =
      wire::DecodeControl(frame.header(), frame.head.bytes().subspan(sizeof(wire::FrameHeader)));
  return message.ok() && (std::holds_alternative<wire::HelloReply>(*message) ||
                          std::holds_alternative<wire::ReplicaHelloReply>(*message));
}

}  // namespace cairn::server

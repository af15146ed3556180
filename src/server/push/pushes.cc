// Numbered pushes (docs/internals/consistency.md, rules 13, 14, 31 and 36): each slot's part is checked whole and
// then applied, straight from the receive buffer, exactly once.
#include "base/bounds.h"
#include "base/planted.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

void ShardImpl::OnPush(const Request& request) {
  if (primary_side_.backups().none()) return TakePush(request);
  // What is sent on to backups is sent from where it was received.
  push_body_ = MakeRecycled<const Buffer>(std::move(request.frame.storage));
  TakePush(request);
  push_body_.reset();
}

void ShardImpl::TakePush(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PushView> decoded = wire::DecodePush(header, push_body_ ? push_body_->bytes() : request.frame.body());
  if (!decoded.ok()) return Violation(request.conn, header, decoded.status());
  const wire::PushView& push = *decoded;
  for (const wire::SlotEntry& entry : push.entries)
    if (entry.number == 0) return Violation(request.conn, header, {Code::kProtocol, "push number 0"});
  if (Status s = slots_.CheckOwner(push.entries, header.state_version, context_.name()); !s.ok()) return outbox_.SendError(request.conn, header, s);
  TableState* table = nullptr;
  if (Status s = tables_.Find(request.table(), &table); !s.ok()) return outbox_.SendError(request.conn, header, s);

  if (Status s = primary_side_.backups().CheckBacklog(); !s.ok()) [[unlikely]] return outbox_.SendError(request.conn, header, s);

  Status shape;
  if (table == nullptr) {
    shape = DroppedTable(request.table());
  } else if (table->sync() && !NumberedInSync(table->info.spec, static_cast<PushOp>(push.params.op))) {
    shape = WrongMode(table->info.spec, "a numbered push");
  } else if (shape = CheckAsyncParams(table->info.spec, push.params); shape.ok()) {
    shape = CheckPushShape(table->info.spec, push, "push");
  }
  problems_.clear();
  problem_text_.clear();
  only_duplicates_ = true;
  ForEachPart(slots_, table, push, shape,
              [&](const Part& part) { PushPart(request, table, shape, push.params, part); });
  ++stats_.pushes;
  wire::FramePtr reply = wire::EncodePushReply(header, problems_, problem_text_, context_.pool());
  const bool duplicate = CAIRN_BUG(kDuplicateUncommitted) && only_duplicates_;
  if (duplicate) return outbox_.Send(request.conn, std::move(reply));
  gate_.Send(request.conn, std::move(reply), push.entries, false);
}

void ShardImpl::PushPart(const Request& request, TableState* table, const Status& shape,
                         const wire::PushParams& params, const Part& part) {
  const Hyper hyper = params.hyper();
  OwnedSlot& slot = slots_[part.local];
  CountPush(slot, table, part);
  const ClientIndex client = request.client->index;
  const Seq seq{part.entry.number};
  const Seq last = slot.numbers.last(client);
  if (seq <= last && !CAIRN_BUG(kApplyDuplicates)) {
    const Status* refusal = slot.numbers.RefusalOf(client, seq);
    if (CAIRN_BUG(kRefusalForgotten)) refusal = nullptr;
    if (refusal != nullptr) AddProblem(part.entry.slot, refusal->code(), seq.value, refusal->message());
    return ObservePush(request, part, Outcome::kDuplicate, refusal != nullptr ? refusal->code() : Code::kOk,
                       hyper, slot.position());
  }
  if (seq > last.Next() && !CAIRN_BUG(kSkipGaps)) {
    AddProblem(part.entry.slot, Code::kUnavailable, last.Next().value, "a push before this one is missing");
    return ObservePush(request, part, Outcome::kGap, Code::kUnavailable, hyper, slot.position());
  }
  if (Status s = CheckPart(table, shape, params, part, "push"); !s.ok()) [[unlikely]]
    return RefusePart(request, part, hyper, s);
  if (seq > last) slot.numbers.Use(client, seq);
  const bool dropped = CAIRN_BUG(kAckBeforeApply) && ++parts_pushed_ % 50 == 0;
  if (!dropped) ApplyPart(*table->rows[part.local], params, part.keys, part.values, part.mask);
  only_duplicates_ = false;
  ObservePush(request, part, Outcome::kApplied, Code::kOk, hyper, slot.NextPosition());
  primary_side_.ShipPush(request, part, params, push_body_);
}

void ShardImpl::RefusePart(const Request& request, const Part& part, const Hyper& hyper, const Status& why) {
  OwnedSlot& slot = slots_[part.local];
  const Seq seq{part.entry.number};
  if (!CAIRN_BUG(kRefusalLeavesGap) && seq > slot.numbers.last(request.client->index))
    slot.numbers.UseRefused(request.client->index, seq, why);
  AddProblem(part.entry.slot, why.code(), seq.value, why.message());
  only_duplicates_ = false;
  ObservePush(request, part, Outcome::kRefused, why.code(), hyper, slot.NextPosition());
  primary_side_.ShipRefusal(request, part, why);
}

void ShardImpl::AddProblem(uint32_t slot, Code code, uint64_t number, const std::string& text) {
  // One text for the frame; a refusal's says more than a gap's.
  if (problems_.empty() ||
      (code != Code::kUnavailable && problems_.back().count == static_cast<uint32_t>(Code::kUnavailable))) {
    problem_text_ = text;
  }
  problems_.push_back({slot, static_cast<uint32_t>(code), number});
}

void ShardImpl::ObservePush(const Request& request, const Part& part, Outcome outcome, Code code,
                            const Hyper& hyper, Position position) {
  if (context_.observer() == nullptr) return;
  const bool applied = outcome == Outcome::kApplied;
  context_.observer()->OnPush(SlotId{part.entry.slot}, request.incarnation(), Seq{part.entry.number}, request.table(),
                    outcome, code, applied ? part.keys : std::span<const RowKey>{},
                    applied ? part.values : std::span<const std::byte>{}, hyper, position);
}

}  // namespace cairn::server

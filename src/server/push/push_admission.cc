#include "server/push/push_admission.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "base/recycled.h"
#include "server/slots/refusal_texts.h"

namespace cairn::server {

Status PushAdmission::OnPush(const Request& request) {
  if (primary_side_.backups().none()) return Take(request);
  // What is sent on to backups is sent from where it was received.
  body_ = MakeRecycled<const Buffer>(std::move(request.frame.storage));
  Status violation = Take(request);
  body_.reset();
  return violation;
}

Status PushAdmission::Take(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PushView> decoded = wire::DecodePush(header, body_ ? body_->bytes() : request.frame.body());
  if (!decoded.ok()) return decoded.status();
  const wire::PushView& push = *decoded;
  for (const wire::SlotEntry& entry : push.entries)
    if (entry.number == 0) return {Code::kProtocol, "push number 0"};
  TableState* table = nullptr;
  Status problem = slots_.CheckOwner(push.entries, header.state_version, context_.name());
  if (problem.ok()) problem = tables_.Find(request.table(), &table);
  if (problem.ok()) problem = primary_side_.backups().CheckBacklog();
  if (!problem.ok()) [[unlikely]] {
    outbox_.SendError(request.conn, header, problem);
    return Status::Ok();
  }

  Status shape;
  if (table == nullptr) {
    shape = DroppedTable(request.table());
  } else if (table->sync() && !NumberedInSync(table->info.spec, static_cast<PushOp>(push.params.op))) {
    shape = WrongMode(table->info.spec, "a numbered push");
  } else if (shape = CheckAsyncParams(table->info.spec, push.params); shape.ok()) {
    shape = CheckPushShape(table->info.spec, push, "push");
  }
  problems_.Clear();
  NoteOnlyDuplicates(true);
  ForEachPart(slots_, table, push, shape,
              [&](const Part& part) { TakePart(request, table, shape, push.params, part); });
  ++pushes_;
  wire::FramePtr reply =
      wire::EncodePushReply(header, problems_.entries(), problems_.text(), context_.pool());
  if (AnswersAtOnce()) {
    outbox_.Send(request.conn, std::move(reply));
  } else {
    gate_.Send(request.conn, std::move(reply), push.entries, false);
  }
  return Status::Ok();
}

void PushAdmission::TakePart(const Request& request, TableState* table, const Status& shape,
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
    if (refusal != nullptr) problems_.Add(part.entry.slot, refusal->code(), seq.value, refusal->message());
    return Observe(request, part, Outcome::kDuplicate, refusal != nullptr ? refusal->code() : Code::kOk,
                   hyper, slot.position());
  }
  if (seq > last.Next() && !CAIRN_BUG(kSkipGaps)) {
    problems_.Add(part.entry.slot, Code::kUnavailable, last.Next().value,
                  "a push before this one is missing");
    return Observe(request, part, Outcome::kGap, Code::kUnavailable, hyper, slot.position());
  }
  if (Status s = CheckPart(table, shape, params, part, "push"); !s.ok()) [[unlikely]]
    return RefusePart(request, part, hyper, s);
  CAIRN_CHECK(seq == last.Next() || CAIRN_ANY_BUG);
  if (seq > last) slot.numbers.Use(client, seq);
  if (!LosesPart()) ApplyPart(*table->rows[part.local], params, part.keys, part.values, part.mask);
  NoteOnlyDuplicates(false);
  Observe(request, part, Outcome::kApplied, Code::kOk, hyper, slot.NextPosition());
  primary_side_.ShipPush(request, part, params, body_);
}

void PushAdmission::RefusePart(const Request& request, const Part& part, const Hyper& hyper,
                               const Status& why) {
  OwnedSlot& slot = slots_[part.local];
  const Seq seq{part.entry.number};
  if (!CAIRN_BUG(kRefusalLeavesGap) && seq > slot.numbers.last(request.client->index))
    slot.numbers.UseRefused(request.client->index, seq, why);
  problems_.Add(part.entry.slot, why.code(), seq.value, why.message());
  NoteOnlyDuplicates(false);
  Observe(request, part, Outcome::kRefused, why.code(), hyper, slot.NextPosition());
  primary_side_.ShipRefusal(request, part, why);
}

void PushAdmission::Observe(const Request& request, const Part& part, Outcome outcome, Code code,
                            const Hyper& hyper, Position position) const {
  if (context_.observer() == nullptr) return;
  const bool applied = outcome == Outcome::kApplied;
  context_.observer()->OnPush(SlotId{part.entry.slot}, request.incarnation(), Seq{part.entry.number},
                              request.table(), outcome, code, applied ? part.keys : std::span<const RowKey>{},
                              applied ? part.values : std::span<const std::byte>{}, hyper, position);
}

#ifdef CAIRN_WITH_PLANTED_BUGS
bool PushAdmission::LosesPart() { return CAIRN_BUG(kAckBeforeApply) && ++parts_pushed_ % 50 == 0; }
void PushAdmission::NoteOnlyDuplicates(bool only) { only_duplicates_ = only; }
bool PushAdmission::AnswersAtOnce() const { return CAIRN_BUG(kDuplicateUncommitted) && only_duplicates_; }
#else
bool PushAdmission::LosesPart() { return false; }
void PushAdmission::NoteOnlyDuplicates(bool) {}
bool PushAdmission::AnswersAtOnce() const { return false; }
#endif

}  // namespace cairn::server

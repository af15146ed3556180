#include "client/protocol/requests.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/planted.h"
#include "client/partition/partition.h"
#include "client/partition/scatter.h"

namespace cairn::client {
namespace {

// Each part of one goes to where the other's goes, and is about the same slots.
bool SameParts(const Request& a, const Request& b) {
  return std::ranges::equal(a.parts, b.parts, [](const ShardPart& x, const ShardPart& y) {
    const auto slot = [](const wire::SlotEntry& entry) { return entry.slot; };
    return x.server == y.server && x.thread == y.thread &&
           std::ranges::equal(wire::MutableEntries(*x.frame), wire::MutableEntries(*y.frame), {}, slot, slot);
  });
}

StateVersion MadeUnder(const Request& request) {
  return StateVersion{request.parts[0].frame->header().state_version};
}

}  // namespace

Requests::Requests(const ClientCoreOptions& options, const SchedulerLink& scheduler, Links& links,
                   SlotBook& book, NewestState& newest, const WaitingWords& words, Completions& completions,
                   ClientObserver* observer, const LogLine& log, BufferPool& pool)
    : scheduler_(scheduler),
      links_(links),
      book_(book),
      words_(words),
      observer_(observer),
      pool_(pool),
      table_(completions),
      bound_(options.max_unacked_bytes),
      sender_(scheduler, links, book),
      coverage_(table_, links, book, sender_, newest, pool),
      moved_slots_log_(log, options.still_waiting_log_us),
      rerouting_(scheduler, table_, links, book, coverage_, moved_slots_log_, pool),
      values_(book, scheduler, observer) {}

Status Requests::Check(const Request& request, const Status& closed) {
  if (!closed.ok()) return closed;
  if (!turns_.in_view() || links_.empty()) {
    return {Code::kUnavailable, "the client is not started yet: wait for Start to end"};
  }
  bool sync = IsRound(request.kind);
  for (const ShardPart& part : request.parts) {
    CAIRN_CHECK(part.frame != nullptr);
    // One that was made under an older map is made to fit when it is sent.
    const bool current = !rerouting_.IsOlderMap(StateVersion{part.frame->header().state_version});
    if (current && links_.At(part.server, part.thread) == nullptr) {
      return {Code::kInternal, "the request was made for another cluster: no server " +
                                   std::to_string(part.server) + " thread " + std::to_string(part.thread)};
    }
    for (const wire::SlotEntry& entry : wire::MutableEntries(*part.frame))
      CAIRN_CHECK(entry.slot < book_.size());
    sync |= (part.frame->header().flags & wire::kFlagSyncPull) != 0;
  }
  if (sync && Bounded(request.table) == nullptr && turns_.Of(request.table) == nullptr) {
    return {Code::kNotFound, "table " + std::to_string(request.table.value) + " was dropped"};
  }
  return IsRound(request.kind) ? turns_.CheckTurn(request) : Status::Ok();
}

// 0: it has ended, refused or with nothing to do.
uint64_t Requests::Admit(Request request, const Status& closed, int64_t now_us) {
  Status refused = Check(request, closed);
  RequestRecord record;
  record.request = std::move(request);
  record.begun_us = now_us;
  if (!refused.ok() || record.request.parts.empty()) {
    table_.TellCaller(record, std::move(refused));
    return 0;
  }
  const uint16_t flags = record.request.parts[0].frame->header().flags;
  record.parks = IsRound(record.request.kind) || (flags & wire::kFlagSyncPull) != 0;
  record.when_assigned = (flags & wire::kFlagAssigned) != 0;
  const TableId table = record.request.table;
  const Request::Kind kind = record.request.kind;
  const bool bounded = Bounded(table) != nullptr;
  if (bounded && record.parks) record.round = clocks_.Of(table);
  const uint64_t id = table_.Add(std::move(record));
  if (bounded && kind == Request::Kind::kPush) clocks_.OnPush(table, id);
  return id;
}

const wire::TableInfo* Requests::Bounded(TableId table) const {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  const wire::TableInfo* info = state == nullptr ? nullptr : state->FindTable(table);
  return info == nullptr || info->spec.staleness == kUnbounded ? nullptr : info;
}

void Requests::EndStep(TableId table, bool last, int64_t now_us) {
  if (Bounded(table) == nullptr) return;
  clocks_.EndStep(table, table_.next_id(), last);
  if (clocks_.TakeQuestion(table, false)) SendClock({table, Round{0}}, now_us);
  TellClocks(now_us);
}

void Requests::TellClocks(int64_t now_us) {
  while (const auto due = clocks_.TakeDue()) SendClock(*due, now_us);
}

void Requests::SendClock(const Clocks::Due& clock, int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  if (state->FindTable(clock.table) == nullptr) return clocks_.Forget(clock.table);
  RequestRecord record;
  record.request = PrepareClock(*state, clock.table, clock.last, pool_);
  record.request.deadline_us = std::numeric_limits<int64_t>::max();
  record.begun_us = now_us;
  const uint64_t id = table_.Add(std::move(record));
  Release(id, clock.clock, now_us);
}

void Requests::FollowClocks(bool new_map, int64_t now_us) {
  if (!turns_.in_view()) return;
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  for (const wire::TableInfo& info : state->tables) {
    if (info.spec.staleness != kUnbounded && clocks_.TakeQuestion(info.id, turns_.JoinedAfter(info)))
      SendClock({info.id, Round{0}}, now_us);
  }
  if (!new_map || CAIRN_BUG(kClockNotRepeated)) return;
  for (const Clocks::Due& told : clocks_.told()) SendClock(told, now_us);
}

void Requests::ForgetPush(const RequestRecord& record, uint64_t id) {
  if (record.request.kind == Request::Kind::kPush) clocks_.OnPushEnded(record.request.table, id);
}

void Requests::Submit(Request request, const Status& closed, int64_t now_us) {
  const Request::Kind kind = request.kind;
  const TableId table = request.table;
  const bool joined = request.joined;
  const uint64_t id = Admit(std::move(request), closed, now_us);
  if (id == 0) return;
  sender_.SetSubmitting(id);
  if (kind == Request::Kind::kDecide) {
    Release(id, turns_.Of(table)->Decide(id), now_us);
  } else if (table_.At(id).parks && Bounded(table) == nullptr) {
    turns_.Of(table)->Add(id, kind, joined);
    ReleaseRounds(table, now_us);
  } else {
    Hold(id, now_us);
  }
  sender_.SetSubmitting(0);
}

bool Requests::SubmitInTurns(Request& push, Request& pull, const Status& closed, int64_t now_us) {
  const auto fits_map = [&](const Request& request) { return !rerouting_.IsOlderMap(MadeUnder(request)); };
  const bool in_turns = bound_.HasRoomFor(push.bytes) && !push.parts.empty() && SameParts(push, pull) &&
                        fits_map(push) && fits_map(pull) && Check(push, closed).ok() &&
                        Check(pull, closed).ok();
  if (!in_turns) return false;
  bound_.Take(push.bytes);
  const uint64_t ids[] = {Admit(std::move(push), closed, now_us), Admit(std::move(pull), closed, now_us)};
  const size_t parts = table_.At(ids[0]).request.parts.size();
  for (uint64_t id : ids) {
    table_.At(id).sent = true;
    table_.At(id).frames.reserve(parts);
  }
  for (uint32_t i = 0; i < parts; ++i) {
    for (uint64_t id : ids) {
      sender_.SetSubmitting(id);
      sender_.Send(id, table_.At(id), i, false, now_us);
    }
  }
  sender_.SetSubmitting(0);
  return true;
}

// Behind what is held already; a part of a push behind those before it, or not at all if they have gone.
void Requests::Hold(uint64_t id, int64_t now_us) {
  const Request& request = table_.At(id).request;
  const PushBound::Waiting one = {.request = id,
                                  .numbered = request.kind == Request::Kind::kPush,
                                  .bytes = request.bytes,
                                  .push = request.push,
                                  .room = request.room};
  if (PushBound::IsLaterPart(one)) {
    if (bound_.AddLaterPart(one)) Release(id, Round{0}, now_us);
    return;
  }
  bound_.Add(one);
  ReleaseHeld(now_us);
}

void Requests::ReleaseHeld(int64_t now_us) {
  for (uint64_t id = bound_.Next(); id != 0; id = bound_.Next()) Release(id, table_.At(id).round, now_us);
}

void Requests::ReleaseRounds(TableId table, int64_t now_us) {
  TableOrder* order = turns_.Of(table);
  if (order == nullptr) return;
  for (TableOrder::Start next = order->Next(); next.request != 0; next = order->Next()) {
    Release(next.request, next.round, now_us);
  }
}

void Requests::Release(uint64_t id, Round round, int64_t now_us) {
  RequestRecord& record = table_.At(id);
  CAIRN_CHECK(!record.sent);
  record.sent = true;
  record.round = round;
  const bool moved = rerouting_.IsOlderMap(MadeUnder(record.request));
  if (moved) rerouting_.FitToMap(record);
  record.frames.reserve(record.request.parts.size());
  for (uint32_t i = 0; i < record.request.parts.size(); ++i) sender_.Send(id, record, i, moved, now_us);
  if (moved && IsRound(record.request.kind)) coverage_.MarkMissing(id, record, now_us);
}

ShardLink::Verdict Requests::OnValues(const Outgoing& frame, const ShardLink::Listener::Answer& answer,
                                      const wire::ValuesView& values) {
  RequestRecord& record = table_.At(frame.request);
  ShardLink::Verdict verdict = ShardLink::Verdict::kMalformed;
  if ((answer.flags & wire::kFlagReport) == 0) {
    verdict = values_.Take(record, frame, values);
  } else if (frame.kind == Request::Kind::kContribute) {
    const ShardPart& part = record.request.parts[frame.part];
    const RoundReports::From from{part.server, part.thread, coverage_.SameMapAt(answer.made_under)};
    if (record.reports.Take(values, scheduler_.state()->slots, from)) verdict = ShardLink::Verdict::kTaken;
  }
  if (verdict == ShardLink::Verdict::kTaken)
    record.reports.NoteJoined((answer.flags & wire::kFlagAllJoined) != 0);
  return verdict;
}

void Requests::OnFrameEnd(const Outgoing& frame, const Status& outcome,
                          const ShardLink::Listener::Answer& answer, int64_t now_us) {
  RequestRecord& record = table_.At(frame.request);
  CAIRN_CHECK(frame.part < record.frames.size() && record.unanswered > 0);
  FrameState& state = record.frames[frame.part];
  state.id = 0;
  if (state.marks) coverage_.NoteMark(record, state, answer.made_under);
  if (record.outcome.ok()) record.outcome = outcome;
  const bool asked = frame.kind == Request::Kind::kClock && record.round == Round{0};
  if (asked && outcome.ok() && clocks_.BeginAt(record.request.table, answer.round) && observer_ != nullptr)
    observer_->OnClockBegins(scheduler_.incarnation(), record.request.table, answer.round);
  if (frame.kind == Request::Kind::kPull && record.parks && outcome.ok() && Bounded(record.request.table))
    clocks_.OnRead(record.round, answer.round);
  if (--record.unanswered == 0) return Finish(frame.request, now_us);
  if (CAIRN_BUG(kNextRoundEarly) && rerouting_.reroutes() == 0 && frame.kind == Request::Kind::kRound) {
    if (TableOrder* order = turns_.Of(record.request.table); order != nullptr) {
      order->Ended(frame.request);
      ReleaseRounds(record.request.table, now_us);
    }
  }
}

void Requests::OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message) {
  RequestRecord& record = table_.At(frame.request);
  record.missing_ranks = message.missing_ranks;
  record.waits_for = message.waits_for;
}

void Requests::OnNewState(std::shared_ptr<const wire::ClusterState> state, const wire::WorkerInfo* self) {
  turns_.OnNewState(std::move(state), self);
}

void Requests::FollowMap(int64_t now_us) {
  const StateVersion map = rerouting_.map_version();
  rerouting_.FollowMap(now_us);
  for (uint64_t id : coverage_.TakeAnswered()) Finish(id, now_us);
  const bool new_map = map != StateVersion{0} && map != rerouting_.map_version();
  if (new_map) EndClocksOfGone(now_us);
  FollowClocks(new_map, now_us);
}

// The last frame of one may have been for a server that is gone.
void Requests::EndClocksOfGone(int64_t now_us) {
  std::vector<uint64_t> ended;
  for (const auto& [id, record] : table_)
    if (record.request.kind == Request::Kind::kClock && record.unanswered == 0) ended.push_back(id);
  for (uint64_t id : ended) Finish(id, now_us);
}

void Requests::Finish(uint64_t id, int64_t now_us) {
  if (!coverage_.IsCovered(id, table_.At(id), now_us)) return;
  RequestRecord record = table_.Take(id);
  if (!record.ended && record.request.info != nullptr && record.outcome.ok())
    *record.request.info = record.reports.Info();
  table_.TellCaller(record, record.outcome);
  ForgetPush(record, id);
  switch (record.request.kind) {
    case Request::Kind::kPush:
      ++pushes_;
      bound_.Free(record.request.bytes);
      ReleaseHeld(now_us);
      return TellClocks(now_us);
    case Request::Kind::kClock: return TellClocks(now_us);
    case Request::Kind::kPull: ++pulls_; return;
    case Request::Kind::kContribute: return FinishContribute(id, record, now_us);
    case Request::Kind::kRound:
    case Request::Kind::kDecide: return FinishRound(id, record, now_us);
  }
}

void Requests::FinishRound(uint64_t id, const RequestRecord& record, int64_t now_us) {
  ++rounds_;
  if (observer_ != nullptr) {
    observer_->OnRoundAcknowledged(scheduler_.incarnation(), record.request.table, record.round,
                                   record.outcome);
  }
  if (TableOrder* order = turns_.Of(record.request.table)) order->Ended(id);
  ReleaseRounds(record.request.table, now_us);
}

// A round of which something went wrong does not stay open (docs/internals/consistency.md, rules 32 to 35).
void Requests::FinishContribute(uint64_t id, const RequestRecord& record, int64_t now_us) {
  TableOrder* const order = turns_.Of(record.request.table);
  if (order == nullptr) return;
  // Decided after its deadline; the decision's answers may even have come first.
  const bool decided = order->phase() != TableOrder::Phase::kContributing;
  const bool expired = order->may_decide();  // its caller has been told to decide
  order->Ended(id);
  if (decided) return ReleaseRounds(record.request.table, now_us);
  if (!record.outcome.ok() && !expired) SkipRound(record.request.table, now_us);
}

// A Contribute that failed leaves nothing to decide to its caller. Where the round is closed (the
// others have seen the same) this decision changes nothing; where it is not, nobody waits for it.
void Requests::SkipRound(TableId table, int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  const wire::TableInfo* info = state->FindTable(table);
  PartitionInput input{.state = state.get(), .table = info};
  input.phase = RoundPhase::kDecide;
  input.skip = true;
  Result<Request> skip(Code::kNotFound, "dropped");
  if (info != nullptr) skip = PrepareRound(input, pool_);
  if (!skip.ok()) {
    turns_.Of(table)->Close();
    return ReleaseRounds(table, now_us);
  }
  RequestRecord record;
  record.request = std::move(*skip);
  record.request.deadline_us = std::numeric_limits<int64_t>::max();
  record.begun_us = now_us;
  record.parks = true;
  const uint64_t id = table_.Add(std::move(record));
  Release(id, turns_.Of(table)->Decide(id), now_us);
}

void Requests::OnTick(int64_t now_us) {
  CheckDeadlines(now_us);
  moved_slots_log_.OnTick(now_us);
}

void Requests::CheckDeadlines(int64_t now_us) {
  for (uint64_t id = table_.NextDue(now_us); id != 0; id = table_.NextDue(now_us)) {
    const RequestRecord& record = table_.At(id);
    EndCall(id, words_.WhatOf(record) + " was not finished in time: " + words_.AwaitedBy(record, now_us),
            now_us);
  }
}

void Requests::ExpireAll(const std::string& text, int64_t now_us) {
  std::vector<uint64_t> ids;
  for (const auto& [id, record] : table_)
    if (!record.ended) ids.push_back(id);
  for (uint64_t id : ids) {
    const RequestRecord* record = table_.Find(id);
    if (record == nullptr || record->ended) continue;
    table_.ForgetDeadline(id);
    EndCall(id, text, now_us);
  }
}

// The caller is told; what others need of it goes on.
void Requests::EndCall(uint64_t id, const std::string& text, int64_t now_us) {
  RequestRecord& record = table_.At(id);
  const Request::Kind kind = record.request.kind;
  const bool unknown = kind == Request::Kind::kPush && record.sent;
  const Status status = unknown ? Status(Code::kOutcomeUnknown, text + "; it may still be applied")
                                : Status(Code::kDeadlineExceeded, text);
  table_.TellCaller(record, status);
  if (!record.sent) return EndUnsent(id, status, now_us);
  const TableId table = record.request.table;
  // A numbered push and a round stay: a gap would block the slots, a missing part the others. But
  // nothing may refer to the caller's memory any more.
  for (uint32_t i = 0; i < record.frames.size(); ++i) {
    ShardPart& part = record.request.parts[i];
    DropTargets(part);
    const uint64_t frame = record.frames[i].id;
    if (frame == 0) continue;
    ShardLink* link = links_.At(part.server, part.thread);
    if (kind == Request::Kind::kPull) {
      link->Drop(frame);
    } else {
      link->DisownBorrowed(frame, now_us);
    }
  }
  if (kind == Request::Kind::kPull) table_.Erase(id);
  if (kind == Request::Kind::kContribute) turns_.Of(table)->Expired(id);
}

// Its caller has been told. With a part of a push go the others: nothing of it was sent.
void Requests::EndUnsent(uint64_t id, const Status& status, int64_t now_us) {
  const RequestRecord record = table_.Take(id);
  const TableId table = record.request.table;
  ForgetPush(record, id);
  if (record.parks && Bounded(table) == nullptr) {
    turns_.Of(table)->Remove(id);
    return ReleaseRounds(table, now_us);
  }
  bound_.Remove(id);
  if (record.request.push != 0) {
    for (uint64_t other : bound_.RemovePartsOf(record.request.push)) {
      table_.TellCaller(table_.At(other), status);
      ForgetPush(table_.At(other), other);
      table_.Erase(other);
    }
  }
  ReleaseHeld(now_us);
  TellClocks(now_us);
}

void Requests::EndAll(const Status& why) {
  for (auto& [id, record] : table_) {
    const bool unknown = record.request.kind == Request::Kind::kPush && record.sent;
    table_.TellCaller(
        record, unknown ? Status(Code::kOutcomeUnknown,
                                 words_.WhatOf(record) +
                                     " was not acknowledged, it may have been applied: " + why.message())
                        : why);
  }
  table_.Clear();
  bound_.Clear();
  turns_.Clear();
  clocks_.Clear();
}

}  // namespace cairn::client

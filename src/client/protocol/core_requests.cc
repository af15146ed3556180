// The way of a request: held back until its turn, numbered, queued on the links, answered.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "client/protocol/core.h"
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

// Of a push in parts, and not the first one.
bool IsLaterPart(const Request& request) { return request.push != 0 && request.room == 0; }

}  // namespace

// 0: it has ended, refused or with nothing to do.
uint64_t Core::Admit(Request request, int64_t now_us) {
  Status refused = CheckRequest(request);
  Record record;
  record.request = std::move(request);
  record.begun_us = now_us;
  if (!refused.ok() || record.request.parts.empty()) {
    TellCaller(record, std::move(refused));
    return 0;
  }
  const uint16_t flags = record.request.parts[0].frame->header().flags;
  record.parks = IsRound(record.request.kind) || (flags & wire::kFlagSyncPull) != 0;
  record.when_assigned = (flags & wire::kFlagAssigned) != 0;
  const uint64_t id = next_request_++;
  deadlines_.emplace(record.request.deadline_us, id);
  requests_.emplace(id, std::move(record));
  return id;
}

void Core::Submit(Request request, int64_t now_us) {
  const Request::Kind kind = request.kind;
  const TableId table = request.table;
  const bool joined = request.joined;
  const uint64_t id = Admit(std::move(request), now_us);
  if (id == 0) return Settle(now_us);
  submitting_ = id;
  if (kind == Request::Kind::kDecide) {
    Release(id, OrderOf(table)->Decide(id), now_us);
  } else if (requests_.at(id).parks) {
    OrderOf(table)->Add(id, kind, joined);
    ReleaseRounds(table, now_us);
  } else {
    Hold(id, now_us);
  }
  submitting_ = 0;
  Settle(now_us);
}

// Behind what is held already; a part of a push behind those before it, or not at all if they have gone.
void Core::Hold(uint64_t id, int64_t now_us) {
  const Request& request = requests_.at(id).request;
  if (!IsLaterPart(request)) {
    held_.push_back(id);
    return ReleaseHeld(now_us);
  }
  const auto before = std::find_if(held_.rbegin(), held_.rend(), [&](uint64_t other) {
    return requests_.at(other).request.push == request.push;
  });
  if (before != held_.rend()) {
    held_.insert(before.base(), id);
    return;
  }
  unacked_bytes_ += request.bytes;
  Release(id, Round{0}, now_us);
}

void Core::SubmitInTurns(Request push, Request pull, int64_t now_us) {
  const auto fits_map = [&](const Request& request) {
    return StateVersion{request.parts[0].frame->header().state_version} >= map_version_;
  };
  const bool room = held_.empty() && (unacked_bytes_ == 0 ||
                                       unacked_bytes_ + push.bytes <= options_.max_unacked_bytes);
  const bool in_turns = room && !push.parts.empty() && SameParts(push, pull) && fits_map(push) &&
                        fits_map(pull) && CheckRequest(push).ok() && CheckRequest(pull).ok();
  if (!in_turns) {
    Submit(std::move(push), now_us);
    return Submit(std::move(pull), now_us);
  }
  unacked_bytes_ += push.bytes;
  const uint64_t ids[] = {Admit(std::move(push), now_us), Admit(std::move(pull), now_us)};
  const size_t parts = requests_.at(ids[0]).request.parts.size();
  for (uint64_t id : ids) {
    requests_.at(id).sent = true;
    requests_.at(id).frames.reserve(parts);
  }
  for (uint32_t i = 0; i < parts; ++i) {
    for (uint64_t id : ids) {
      submitting_ = id;
      SendPart(id, requests_.at(id), i, now_us, false);
    }
  }
  submitting_ = 0;
  Settle(now_us);
}

Status Core::CheckRequest(const Request& request) {
  if (Status s = Closed(); !s.ok()) return s;
  if (joined_ == nullptr || links_.empty()) {
    return {Code::kUnavailable, "the client is not started yet: wait for Start to end"};
  }
  bool sync = IsRound(request.kind);
  for (const ShardPart& part : request.parts) {
    CAIRN_CHECK(part.frame != nullptr);
    // One that was made under an older map is made to fit when it is sent.
    const bool current = part.frame->header().state_version >= map_version_.value;
    if (current && links_.At(part.server, part.thread) == nullptr) {
      return {Code::kInternal, "the request was made for another cluster: no server " +
                                   std::to_string(part.server) + " thread " + std::to_string(part.thread)};
    }
    for (const wire::SlotEntry& entry : wire::MutableEntries(*part.frame))
      CAIRN_CHECK(entry.slot < book_.size());
    sync |= (part.frame->header().flags & wire::kFlagSyncPull) != 0;
  }
  if (sync && OrderOf(request.table) == nullptr) {
    return {Code::kNotFound, "table " + std::to_string(request.table.value) + " was dropped"};
  }
  return IsRound(request.kind) ? CheckTurn(request) : Status::Ok();
}

Round Core::FirstRoundOf(const wire::TableInfo& table) const {
  return wire::FirstRound(*joined_, self_, table);
}

TableOrder* Core::OrderOf(TableId table) {
  auto it = orders_.find(table);
  if (it != orders_.end()) return &it->second;
  const wire::TableInfo* info = scheduler_.state()->FindTable(table);
  if (info == nullptr || joined_ == nullptr) return nullptr;
  return &orders_.emplace(table, TableOrder(FirstRoundOf(*info))).first->second;
}

Round Core::next_round(TableId table) const {
  auto it = orders_.find(table);
  if (it != orders_.end()) return it->second.next_round();
  const wire::TableInfo* info = scheduler_.state()->FindTable(table);
  return info == nullptr || joined_ == nullptr ? Round{0} : FirstRoundOf(*info);
}

bool Core::has_room() const { return held_.empty() && unacked_bytes_ < options_.max_unacked_bytes; }

// Pulls wait behind pushes that are held back, so that a push followed by a pull reads itself.
void Core::ReleaseHeld(int64_t now_us) {
  while (!held_.empty()) {
    const uint64_t id = held_.front();
    const Request& request = requests_.at(id).request;
    if (request.kind == Request::Kind::kPush) {
      const uint64_t room = std::max(request.bytes, request.room);
      const bool fits = unacked_bytes_ + room <= options_.max_unacked_bytes || IsLaterPart(request);
      if (!fits && unacked_bytes_ > 0) {
        CAIRN_AT_BOUND(kUnackedBytes);
        return;
      }
      unacked_bytes_ += request.bytes;
    }
    held_.pop_front();
    Release(id, Round{0}, now_us);
  }
}

void Core::ReleaseRounds(TableId table, int64_t now_us) {
  TableOrder* order = OrderOf(table);
  if (order == nullptr) return;
  for (TableOrder::Start next = order->Next(); next.request != 0; next = order->Next()) {
    Release(next.request, next.round, now_us);
  }
}

// What was held back leaves by itself, later than the rest of its trip.
bool Core::BeginsTrip(uint64_t id, uint64_t trip, ShardLink& link) const {
  constexpr uint64_t kOwn = uint64_t{1} << 63;
  return link.BeginTrip(trip == 0 || id != submitting_ ? kOwn | id : trip);
}

void Core::Release(uint64_t id, Round round, int64_t now_us) {
  Record& record = requests_.at(id);
  record.sent = true;
  record.round = round;
  const StateVersion made{record.request.parts[0].frame->header().state_version};
  const bool moved = made < map_version_;
  if (moved) FitToMap(record);
  record.frames.reserve(record.request.parts.size());
  for (uint32_t i = 0; i < record.request.parts.size(); ++i) SendPart(id, record, i, now_us, moved);
  if (moved && IsRound(record.request.kind)) MarkMissing(id, record, now_us);
}

void Core::SendPart(uint64_t id, Record& record, uint32_t at, int64_t now_us, bool fitted) {
  ShardPart& part = record.request.parts[at];
  const Request::Kind kind = record.request.kind;
  wire::FrameHeader& header = part.frame->header();
  header.request_id = next_frame_++ * kFrameIdStep;
  header.incarnation = scheduler_.incarnation().value;
  header.round = record.round.value;
  ShardLink* const link = links_.At(part.server, part.thread);
  if (BeginsTrip(id, record.request.trip, *link)) header.flags |= wire::kFlagTrip;
  if (kind == Request::Kind::kPush) {
    for (wire::SlotEntry& entry : wire::MutableEntries(*part.frame)) {
      entry.number = book_.next_number[entry.slot]++;
    }
  }
  link->Seal(*part.frame);
  const bool marks = IsRound(kind) && (header.type == wire::FrameType::kDone ||
                                       (header.flags & wire::kFlagDone) != 0);
  record.frames.push_back({header.request_id, marks, {}});
  ++record.unanswered;
  Outgoing frame;
  frame.request = id;
  frame.part = at;
  frame.kind = kind;
  frame.parks = record.parks;
  frame.borrows = part.borrowed;
  // Now: where the values go is forgotten when the deadline passes, and the answer may come later.
  frame.answer_bytes = part.keys == nullptr ? ExpectedBytes(part) : wire::kMaxBodyBytes;
  // The driver knows the frames of the request as it was submitted, and would take its connections'
  // hands off them; for others this is up to the link (ShardLink::End).
  frame.sends = fitted ? 1 : 0;
  frame.frame = std::move(part.frame);
  link->Enqueue(record.frames.back().id, std::move(frame), now_us);
}

ShardLink::Verdict Core::OnValues(const Outgoing& frame, const Answer& answer,
                                  const wire::ValuesView& values) {
  Record& record = requests_.at(frame.request);
  const bool reports = (answer.flags & wire::kFlagReport) != 0;
  if (reports && frame.kind != Request::Kind::kContribute) return ShardLink::Verdict::kMalformed;
  const ShardLink::Verdict verdict =
      reports ? TakeReport(record, frame, answer, values) : TakeValues(record, frame, values);
  if (verdict == ShardLink::Verdict::kTaken)
    record.all_joined &= (answer.flags & wire::kFlagAllJoined) != 0;
  return verdict;
}

ShardLink::Verdict Core::TakeValues(Record& record, const Outgoing& frame,
                                    const wire::ValuesView& values) {
  const ShardPart& part = record.request.parts[frame.part];
  const size_t expected = part.keys == nullptr ? ExpectedBytes(part) : KeyBytes(values.entries);
  if (record.ended || (expected == 0 && part.keys == nullptr)) return ShardLink::Verdict::kTaken;
  const std::span<const wire::SlotEntry> asked = wire::MutableEntries(*frame.frame);
  const bool same = std::equal(asked.begin(), asked.end(), values.entries.begin(), values.entries.end(),
                               [](const auto& a, const auto& b) { return a.slot == b.slot; });
  if (!same || values.values.size() != expected) return ShardLink::Verdict::kMalformed;
  if (const auto verdict = CheckPositions(record, values); verdict != ShardLink::Verdict::kTaken)
    return verdict;
  Scatter(part, values.values);
  return ShardLink::Verdict::kTaken;
}

// A node that has been away may answer from an older time: reads never go back.
ShardLink::Verdict Core::CheckPositions(const Record& record, const wire::ValuesView& values) {
  for (const wire::SlotEntry& entry : values.entries) {
    if (entry.number < book_.seen[entry.slot] && !CAIRN_BUG(kStaleRead)) return ShardLink::Verdict::kStale;
  }
  for (const wire::SlotEntry& entry : values.entries) {
    uint64_t& seen = book_.seen[entry.slot];
    seen = std::max(seen, entry.number);
    if (observer_ != nullptr) {
      observer_->OnRead(SlotId{entry.slot}, incarnation(), record.request.table, Position{entry.number});
    }
  }
  return ShardLink::Verdict::kTaken;
}

void Core::OnApplied(SlotId slot, Seq seq) {
  if (observer_ != nullptr) observer_->OnAcknowledged(slot, incarnation(), seq);
}

void Core::OnFrameEnd(const Outgoing& frame, const Status& outcome, const Answer& answer,
                      int64_t now_us) {
  Record& record = requests_.at(frame.request);
  FrameState& state = record.frames[frame.part];
  state.id = 0;
  if (state.marks) NoteMark(record, state, answer.made_under);
  if (record.outcome.ok()) record.outcome = outcome;
  if (--record.unanswered == 0) return Finish(frame.request, now_us);
  if (CAIRN_BUG(kNextRoundEarly) && reroutes_ == 0 && frame.kind == Request::Kind::kRound) {
    if (TableOrder* order = OrderOf(record.request.table); order != nullptr) {
      order->Ended(frame.request);
      ReleaseRounds(record.request.table, now_us);
    }
  }
}

void Core::OnStillWaiting(const Outgoing& frame, const wire::StillWaiting& message) {
  Record& record = requests_.at(frame.request);
  record.missing_ranks = message.missing_ranks;
  record.waits_for = message.waits_for;
}

void Core::Finish(uint64_t id, int64_t now_us) {
  auto it = requests_.find(id);
  if (!IsCovered(id, it->second, now_us)) return;
  Record record = std::move(it->second);
  requests_.erase(it);
  deadlines_.erase({record.request.deadline_us, id});
  TellRoundInfo(record);
  TellCaller(record, record.outcome);
  switch (record.request.kind) {
    case Request::Kind::kPush:
      ++pushes_;
      unacked_bytes_ -= record.request.bytes;
      return ReleaseHeld(now_us);
    case Request::Kind::kPull: ++pulls_; return;
    case Request::Kind::kContribute: return FinishContribute(id, record, now_us);
    case Request::Kind::kRound:
    case Request::Kind::kDecide: return FinishRound(id, record, now_us);
  }
}

void Core::TellCaller(Record& record, Status status) {
  if (record.ended) return;
  record.ended = true;
  completions_.Add([done = std::move(record.request.done), status = std::move(status)]() mutable {
    if (done) done(std::move(status));
  });
}

}  // namespace cairn::client

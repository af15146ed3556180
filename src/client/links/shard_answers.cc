// What a shard thread says: answers count only where they match an unanswered frame.
#include <algorithm>
#include <utility>
#include <variant>

#include "base/planted.h"
#include "client/links/shard_link.h"

namespace cairn::client {
namespace {

// A server that has lost something says so on every connection, an old copy of an answer does not.
constexpr uint32_t kDoubts = 4;

Code CodeOf(const wire::SlotEntry& problem) {
  const bool known = problem.count > 0 && problem.count <= static_cast<uint32_t>(Code::kInternal);
  return known ? static_cast<Code>(problem.count) : Code::kInternal;
}

const wire::SlotEntry* Find(std::span<const wire::SlotEntry> entries, uint32_t slot) {
  auto it = std::lower_bound(entries.begin(), entries.end(), slot,
                             [](const wire::SlotEntry& entry, uint32_t s) { return entry.slot < s; });
  return it == entries.end() || it->slot != slot ? nullptr : &*it;
}

Status Refused(const wire::PushReplyView& reply) {
  if (reply.entries.empty()) return Status::Ok();
  return {CodeOf(reply.entries.front()), std::string(reply.text)};
}

}  // namespace

void ShardLink::OnMessage(const wire::InFrame& frame, int64_t now_us) {
  if (frame.header.type == wire::FrameType::kControl) return OnControl(frame, now_us);
  if (phase_ != Phase::kReady || frame.header.incarnation != peer_.worker.value) return;
  if (frame.header.state_version > book_.state_version) [[unlikely]] {
    listener_.OnNewerState(StateVersion{frame.header.state_version}, now_us);
  }
  auto it = queue_.find(frame.header.request_id);
  if (it == queue_.end() || it->first > sent_through_) return;
  switch (frame.header.type) {
    case wire::FrameType::kPushReply:
      if (it->second.kind == Request::Kind::kPush) OnPushReply(it, frame, now_us);
      break;
    case wire::FrameType::kRoundReply:
      if (IsRound(it->second.kind)) OnValuesReply(it, frame, now_us);
      break;
    case wire::FrameType::kPullReply:
      if (it->second.kind == Request::Kind::kPull) OnValuesReply(it, frame, now_us);
      break;
    case wire::FrameType::kError: OnError(it, frame, now_us); break;
    default: break;
  }
  if (reopen_) return Reopen(now_us);
  Pump(now_us);
}

void ShardLink::OnControl(const wire::InFrame& frame, int64_t now_us) {
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) {
    trouble_ = message.status().message();
    return Reopen(now_us);
  }
  if (auto* hello = std::get_if<wire::HelloReply>(&*message)) {
    if (hello->version.value > book_.state_version) listener_.OnNewerState(hello->version, now_us);
    if (phase_ == Phase::kGreeting) Ready(now_us);
  } else if (auto* refusal = std::get_if<wire::Refusal>(&*message)) {
    if (refusal->code == Code::kRetired) return listener_.OnLinkFatal({Code::kRetired, refusal->text}, now_us);
    // Not ready for us, or not the server that the state means: the scheduler will say.
    trouble_ = refusal->text;
    if (phase_ == Phase::kGreeting) Reopen(now_us);
  } else if (auto* waiting = std::get_if<wire::StillWaiting>(&*message)) {
    auto it = queue_.find(waiting->request);
    if (it == queue_.end()) return;
    it->second.heard_us = now_us;
    if (!it->second.parks) oldest_us_ = now_us;  // the shard has it, and what came before it
    listener_.OnStillWaiting(it->second, *waiting);
  } else if (phase_ == Phase::kReady && (std::holds_alternative<wire::StateAt>(*message) ||
                                         std::holds_alternative<wire::StateMessage>(*message))) {
    listener_.OnStateOf(*this, *message);
  }
}

void ShardLink::OnPushReply(Queue::iterator it, const wire::InFrame& frame, int64_t now_us) {
  Result<wire::PushReplyView> reply = wire::DecodePushReply(frame.header, frame.body());
  if (!reply.ok()) return Reopen(now_us);
  const std::span<const wire::SlotEntry> entries = wire::MutableEntries(*it->second.frame);
  for (const wire::SlotEntry& problem : reply->entries) {
    if (Find(entries, problem.slot) == nullptr) return Reopen(now_us);
    if (CodeOf(problem) == Code::kUnavailable) return OnGap(problem, now_us);
  }
  for (const wire::SlotEntry& entry : entries) {
    uint64_t& answered = book_.answered[entry.slot];
    answered = std::max(answered, entry.number);
    // The slot goes on: what was doubted was an old copy, and the next such answer starts anew.
    if (doubt_ && doubt_->slot == entry.slot && answered > doubt_->answered) doubt_.reset();
    if (Find(reply->entries, entry.slot) == nullptr) listener_.OnApplied(SlotId{entry.slot}, Seq{entry.number});
  }
  End(it, Refused(*reply), frame.header, now_us);
}

// Answers may come out of order: a later number can be answered while this one still waits.
bool ShardLink::Keeps(uint32_t slot, uint64_t number) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const auto& item) {
    if (item.second.kind != Request::Kind::kPush) return false;
    const wire::SlotEntry* entry = Find(wire::MutableEntries(*item.second.frame), slot);
    return entry != nullptr && entry->number == number;
  });
}

void ShardLink::OnGap(const wire::SlotEntry& gap, int64_t now_us) {
  const uint64_t answered = book_.answered[gap.slot];
  if (gap.number <= answered && !Keeps(gap.slot, gap.number)) {
    const bool again = doubt_ && doubt_->slot == gap.slot && gap.number <= doubt_->answered;
    if (again && ++doubt_->seen >= kDoubts) {
      return listener_.OnLinkFatal(
          {Code::kJobFailed, Describe() + " asks for push " + std::to_string(gap.number) + " of partition " +
                                 std::to_string(gap.slot) + " again, after it had acknowledged all up to " +
                                 std::to_string(answered) + ": it has lost acknowledged pushes"},
          now_us);
    }
    if (!again) doubt_ = Doubt{gap.slot, answered, 1};
    return Reopen(now_us);
  }
  // All that was in flight behind the gap gets the same answer: one of them is enough.
  auto [at, first] = rewound_.try_emplace(gap.slot, gap.number);
  if (!first && gap.number <= at->second && !CAIRN_BUG(kRewindPerAnswer)) return;
  at->second = std::max(at->second, gap.number);
  Rewind(now_us);
}

void ShardLink::OnValuesReply(Queue::iterator it, const wire::InFrame& frame, int64_t now_us) {
  if (frame.header.type == wire::FrameType::kRoundReply) {
    wire::PushReplyView refusal;
    if (wire::DecodeRoundRefusal(frame.header, frame.body(), &refusal)) {
      return End(it, Refused(refusal), frame.header, now_us);
    }
  }
  Result<wire::ValuesView> values = wire::DecodeValues(frame.header, frame.body());
  if (!values.ok()) return Reopen(now_us);
  switch (listener_.OnValues(it->second, AnswerOf(it->second, frame.header), *values)) {
    case Verdict::kTaken: return End(it, Status::Ok(), frame.header, now_us);
    case Verdict::kStale: return TryLater(it->second, now_us);
    case Verdict::kMalformed: return Reopen(now_us);
  }
}

void ShardLink::OnError(Queue::iterator it, const wire::InFrame& frame, int64_t now_us) {
  Result<wire::ErrorView> error = wire::DecodeError(frame.header, frame.body());
  if (!error.ok()) return Reopen(now_us);
  const Status status(error->code == Code::kOk ? Code::kInternal : error->code, std::string(error->text));
  if (status.code() == Code::kRetired) return listener_.OnLinkFatal(status, now_us);
  if (status.code() == Code::kUnavailable || status.code() == Code::kResourceExhausted) {
    return TryLater(it->second, now_us);
  }
  // The frame was damaged on the way, or the peer takes it for that: a fresh connection, and all again.
  if (status.code() == Code::kProtocol && ++damaged_ < kDoubts) {
    trouble_ = status.message();
    return Reopen(now_us);
  }
  const Request::Kind kind = it->second.kind;
  if (kind == Request::Kind::kPull) return End(it, status, frame.header, now_us);
  // A round of a dropped table is over. Any other error has closed no round and used up no number:
  // the others would wait for this part for ever, and nothing behind it could be applied.
  if (IsRound(kind) && status.code() == Code::kNotFound) return End(it, status, frame.header, now_us);
  const char* what = kind == Request::Kind::kPush ? " can't take a numbered push" : " can't take a contribution";
  listener_.OnLinkFatal(status.With(Describe() + what), now_us);
}

// Numbered pushes behind this one are refused too: all of them wait. Others are on their own.
void ShardLink::TryLater(Outgoing& frame, int64_t now_us) {
  int64_t& due = frame.kind == Request::Kind::kPush ? rewind_us_ : marked_us_;
  frame.again = true;
  if (due == 0) due = now_us + backoff_.Next();
}

}  // namespace cairn::client

#include "client/links/shard_link.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "client/partition/split_frame.h"

namespace cairn::client {
namespace {

// Shards say of every parked request every few seconds that they keep it; this many times the limit
// for others without a sign, and the request (or what was said of it) is taken as lost.
constexpr int64_t kParkedFactor = 3;

wire::FramePtr WithOwnValues(const wire::Frame& frame, BufferPool& pool) {
  auto copy = MakeRecycled<wire::Frame>();
  copy->head = pool.Get(frame.head.size());
  std::memcpy(copy->head.data(), frame.head.data(), frame.head.size());
  copy->owned = wire::CopyOfValues(frame, pool);
  copy->values = {copy->owned.bytes()};
  copy->coding = frame.coding;
  return copy;
}

// In a row: then the peer can't take the frame at all.
constexpr uint32_t kMostDamaged = 4;

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

ShardLink::ShardLink(Peer peer, const ClientCoreOptions& options, Network& network, BufferPool& pool,
                     SlotBook& book, LinksByConn& by_conn, Listener& listener)
    : peer_(std::move(peer)),
      options_(options),
      pool_(pool),
      book_(book),
      by_conn_(by_conn),
      listener_(listener),
      link_(peer_.endpoint, {options.resend_after_us, options.reconnect},
            Mix64(options.seed, 2 + (uint64_t{peer_.server} << 16) + peer_.thread), network, pool, *this) {}

void ShardLink::Stop() {
  link_.Stop();
  unanswered_.Clear();
}

void ShardLink::OnGone(ConnId conn) {
  by_conn_.erase(conn);
  answer_size_.Reset();
  unanswered_.ForgetSent();
  rewind_us_ = marked_us_ = 0;
  doubts_.OnConnectionGone();
  reopen_ = false;
}

wire::ControlMessage ShardLink::Hello() const {
  wire::Hello hello;
  hello.cluster_id = peer_.cluster_id;
  hello.incarnation = peer_.worker;
  hello.server_incarnation = peer_.server_incarnation;
  hello.thread = peer_.thread;
  return hello;
}

void ShardLink::OnReady(int64_t now_us) {
  unanswered_.WaitFromNow(now_us);
  if (unanswered_.any_sent_before()) return Rewind(now_us);
  Pump(now_us);
}

void ShardLink::Tell(const wire::ControlMessage& message) {
  if (ready()) link_.Send(message);
}

void ShardLink::OnTick(int64_t now_us) {
  if (!ready()) return link_.OnTick(now_us);
  if (rewind_us_ != 0 && now_us >= rewind_us_) return Rewind(now_us);
  if (marked_us_ != 0 && now_us >= marked_us_ && rewind_us_ == 0)
    SendMarked(now_us);  // else all are sent again soon
  link_.OnTick(now_us);
  Pump(now_us);
}

bool ShardLink::Overdue(int64_t limit_us, int64_t now_us) const {
  if (rewind_us_ != 0) return false;  // it has answered: later
  return unanswered_.Overdue(limit_us, kParkedFactor * limit_us, now_us);
}

void ShardLink::Enqueue(uint64_t id, Outgoing frame, int64_t now_us) {
  if (!link_.on()) return;
  unanswered_.Add(id, std::move(frame));
  Pump(now_us);
}

// Frames that park are outside the bound: a round is answered only when all of it has come.
void ShardLink::Pump(int64_t now_us) {
  if (!ready() || rewind_us_ != 0) return;
  const auto may_send = [&](const Outgoing& frame) {
    if (unanswered_.counted() < options_.max_unacked_frames && !TooFarAhead(frame)) return true;
    CAIRN_AT_BOUND(kUnackedFrames);
    return false;
  };
  unanswered_.SendUnsent(may_send, [&](Outgoing& frame) { SendOne(frame, now_us); }, now_us);
}

// A shard keeps a client's last refusals of each slot, as many as frames may be under way: no push goes out
// that could make it forget what an earlier one, still unanswered, was told.
bool ShardLink::TooFarAhead(const Outgoing& frame) const {
  if (frame.kind != Request::Kind::kPush) return false;
  const std::span<const wire::SlotEntry> entries = wire::MutableEntries(*frame.frame);
  return std::any_of(entries.begin(), entries.end(), [&](const wire::SlotEntry& entry) {
    return entry.number > book_.all_answered.through(entry.slot) + options_.max_unacked_frames;
  });
}

void ShardLink::SendOne(Outgoing& frame, int64_t now_us) {
  frame.again = false;
  frame.heard_us = now_us;
  ++frame.sends;
  ++frames_sent_;
  link_.Send(frame.frame);
}

void ShardLink::Rewind(int64_t now_us) {
  ++rewinds_;
  unanswered_.ForgetSent();
  rewind_us_ = marked_us_ = 0;
  Pump(now_us);
}

void ShardLink::SendMarked(int64_t now_us) {
  marked_us_ = 0;
  const auto send = [&](Outgoing& frame) { SendOne(frame, now_us); };
  if (CAIRN_BUG(kRerouteUnordered)) {
    for (auto it = unanswered_.rbegin(); it != unanswered_.rend(); ++it)
      if (unanswered_.IsSent(it->first) && it->second.again) send(it->second);
  }
  unanswered_.SendMarked(send, now_us);
}

Outgoing ShardLink::LetGo(Frame it) {
  Outgoing frame = unanswered_.Take(it);
  if (frame.sends > 0) answer_size_.LetGo(frame.answer_bytes);
  return frame;
}

void ShardLink::Drop(uint64_t id) {
  auto it = unanswered_.Find(id);
  if (it != unanswered_.end()) LetGo(it);
}

void ShardLink::DisownBorrowed(uint64_t id, int64_t now_us) {
  auto it = unanswered_.Find(id);
  if (it == unanswered_.end() || !it->second.borrows) return;
  wire::FramePtr old = std::move(it->second.frame);
  it->second.frame = WithOwnValues(*old, pool_);
  it->second.borrows = false;
  if (old.use_count() > 1) link_.Reopen(now_us);
}

void ShardLink::End(Frame it, const Status& outcome, const wire::FrameHeader& answer, int64_t now_us) {
  link_.Answered();
  damaged_ = 0;
  const Outgoing frame = unanswered_.TakeAnswered(it, now_us);
  if (frame.sends > 1) answer_size_.LetGo(frame.answer_bytes);  // of other copies
  if (frame.kind == Request::Kind::kPush) {
    for (const wire::SlotEntry& entry : wire::MutableEntries(*frame.frame))
      book_.all_answered.OnAnswered(entry.slot, entry.number);
  }
  // A copy that was sent again may still wait to be written, and its values belong to the caller,
  // who is about to be told that he may have them back.
  if (frame.sends > 1 && frame.borrows && frame.frame.use_count() > 1) reopen_ = true;
  listener_.OnFrameEnd(frame, outcome, AnswerOf(frame, answer), now_us);
}

// A shard that does not say had at least the state that the frame was made under (rule 12).
ShardLink::Listener::Answer ShardLink::AnswerOf(const Outgoing& frame, const wire::FrameHeader& answer) {
  const uint64_t asked_under = frame.frame->header().state_version;
  const uint64_t said = answer.state_version;
  return {answer.flags, StateVersion{said == 0 ? asked_under : said}, Round{answer.round}};
}

// Values are covered by the checksum where they cross a network.
void ShardLink::Seal(wire::Frame& frame) const {
  if (!link_.OneHost()) frame.header().flags |= wire::kFlagValuesChecked;
  wire::Seal(frame);
}

uint64_t ShardLink::MostBodyBytes(const wire::FrameHeader& header) const {
  const auto it = unanswered_.Find(header.request_id);
  const bool waits = it != unanswered_.end();
  return answer_size_.MostBytes(header, waits ? std::optional(it->second.answer_bytes) : std::nullopt,
                                book_.size());
}

std::string ShardLink::Describe() const {
  return "server " + std::to_string(peer_.server) + " thread " + std::to_string(peer_.thread) + " at " +
         wire::ToString(peer_.endpoint);
}

std::string ShardLink::Trouble() const {
  if (ready()) return "";
  return link_.trouble().empty() ? "not connected" : link_.trouble();
}

std::vector<ShardLink::Moving> ShardLink::TakeMisplaced(const std::function<Home(const Outgoing&)>& home_of,
                                                        int64_t now_us) {
  std::vector<Moving> moving;
  bool reopen = false, changed = false, stamped = false;
  for (auto it = unanswered_.begin(); it != unanswered_.end();) {
    Outgoing& frame = it->second;
    const Home home = home_of(frame);
    const bool stamps = home.here && frame.frame->header().state_version < home.stamp.value;
    if (home.here && !stamps) {
      ++it;
      continue;
    }
    changed = true;
    ForgetSlots(frame);
    if (stamps) {
      stamped = true;
      reopen |= Restamp(frame, home.stamp);
      frame.again = unanswered_.IsSent(it->first);
      ++it;
      continue;
    }
    // The caller gets his memory back when the frames that replace this one are answered: until
    // then no connection may refer to it but theirs.
    reopen |= frame.borrows && frame.frame.use_count() > 1;
    const uint64_t id = it->first;
    moving.push_back({id, LetGo(it++)});
  }
  if (changed) unanswered_.WaitFromNow(now_us);
  if (stamped) ++rewinds_;
  if (reopen) link_.Reopen(now_us);
  return moving;
}

// True if a connection may still hold the old frame, which refers to the caller's memory.
bool ShardLink::Restamp(Outgoing& frame, StateVersion stamp) {
  const bool held = frame.frame.use_count() > 1;
  if (held) frame.frame = WithOwnHead(frame.frame, frame.borrows, pool_);
  frame.frame->header().state_version = stamp.value;
  Seal(*frame.frame);
  return held && frame.borrows;
}

// What was said of these slots on this connection was said under another epoch.
void ShardLink::ForgetSlots(const Outgoing& frame) {
  if (frame.kind != Request::Kind::kPush) return;
  for (const wire::SlotEntry& entry : wire::MutableEntries(*frame.frame)) {
    doubts_.ForgetSlot(entry.slot);
  }
}

void ShardLink::Insert(uint64_t id, Outgoing frame) {
  CAIRN_CHECK(link_.on());
  ForgetSlots(frame);
  unanswered_.Insert(id, std::move(frame));
}

void ShardLink::Resume(int64_t now_us) {
  if (!ready() || rewind_us_ != 0) return;  // they are sent with all others, later
  // More than may be under way at a time: in order from the beginning, as far as the bound allows.
  if (unanswered_.counted() > options_.max_unacked_frames) return Rewind(now_us);
  if (unanswered_.any_marked()) {
    unanswered_.WaitFromNow(now_us);
    SendMarked(now_us);
  }
  Pump(now_us);
}

void ShardLink::OnMessage(const wire::InFrame& frame, int64_t now_us) {
  if (frame.header.type == wire::FrameType::kControl) return OnControl(frame, now_us);
  if (!ready() || frame.header.incarnation != peer_.worker.value) return;
  if (frame.header.state_version > book_.state_version) [[unlikely]] {
    listener_.OnNewerState(StateVersion{frame.header.state_version}, now_us);
  }
  auto it = unanswered_.Find(frame.header.request_id);
  if (it == unanswered_.end() || !unanswered_.IsSent(it->first)) return;
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
    case wire::FrameType::kClockReply:
      if (it->second.kind == Request::Kind::kClock) End(it, Status::Ok(), frame.header, now_us);
      break;
    case wire::FrameType::kError: OnError(it, frame, now_us); break;
    default: break;
  }
  if (reopen_) return link_.Reopen(now_us);
  Pump(now_us);
}

void ShardLink::OnControl(const wire::InFrame& frame, int64_t now_us) {
  Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) return link_.Reopen(now_us, message.status().message());
  if (auto* hello = std::get_if<wire::HelloReply>(&*message)) {
    if (hello->version.value > book_.state_version) listener_.OnNewerState(hello->version, now_us);
    link_.Greeted(now_us);
  } else if (auto* refusal = std::get_if<wire::Refusal>(&*message)) {
    if (refusal->code == Code::kRetired)
      return listener_.OnLinkFatal({Code::kRetired, refusal->text}, now_us);
    // Not ready for us, or not the server that the state means: the scheduler will say.
    link_.set_trouble(refusal->text);
    if (link_.greeting()) link_.Reopen(now_us);
  } else if (auto* waiting = std::get_if<wire::StillWaiting>(&*message)) {
    auto it = unanswered_.Find(waiting->request);
    if (it == unanswered_.end()) return;
    link_.Answered();
    unanswered_.NoteKept(it, now_us);
    listener_.OnStillWaiting(it->second, *waiting);
  } else if (ready() && (std::holds_alternative<wire::StateAt>(*message) ||
                         std::holds_alternative<wire::StateMessage>(*message))) {
    listener_.OnStateOf(*this, *message);
  }
}

void ShardLink::OnPushReply(Frame it, const wire::InFrame& frame, int64_t now_us) {
  Result<wire::PushReplyView> reply = wire::DecodePushReply(frame.header, frame.body());
  if (!reply.ok()) return link_.Reopen(now_us);
  const std::span<const wire::SlotEntry> entries = wire::MutableEntries(*it->second.frame);
  for (const wire::SlotEntry& problem : reply->entries) {
    if (Find(entries, problem.slot) == nullptr) return link_.Reopen(now_us);
    if (CodeOf(problem) == Code::kUnavailable) return OnGap(problem, now_us);
  }
  for (const wire::SlotEntry& entry : entries) {
    uint64_t& answered = book_.answered[entry.slot];
    answered = std::max(answered, entry.number);
    doubts_.OnAnswered(entry.slot, answered);
    if (Find(reply->entries, entry.slot) == nullptr)
      listener_.OnApplied(SlotId{entry.slot}, Seq{entry.number});
  }
  End(it, Refused(*reply), frame.header, now_us);
}

void ShardLink::OnGap(const wire::SlotEntry& gap, int64_t now_us) {
  const uint64_t answered = book_.answered[gap.slot];
  const bool kept = gap.number <= answered && unanswered_.Keeps(gap.slot, gap.number);
  switch (doubts_.OnGap(gap.slot, gap.number, answered, kept)) {
    case GapDoubts::Verdict::kObeyed: return;
    case GapDoubts::Verdict::kRewind: return Rewind(now_us);
    case GapDoubts::Verdict::kReopen: return link_.Reopen(now_us);
    case GapDoubts::Verdict::kLost:
      listener_.OnLinkFatal(
          {Code::kJobFailed, Describe() + " asks for push " + std::to_string(gap.number) + " of partition " +
                                 std::to_string(gap.slot) + " again, after it had acknowledged all up to " +
                                 std::to_string(answered) + ": it has lost acknowledged pushes"},
          now_us);
  }
}

void ShardLink::OnValuesReply(Frame it, const wire::InFrame& frame, int64_t now_us) {
  if (frame.header.type == wire::FrameType::kRoundReply) {
    wire::PushReplyView refusal;
    if (wire::DecodeRoundRefusal(frame.header, frame.body(), &refusal)) {
      return End(it, Refused(refusal), frame.header, now_us);
    }
  }
  Result<wire::ValuesView> values = wire::DecodeValues(frame.header, frame.body());
  if (!values.ok()) return link_.Reopen(now_us);
  switch (listener_.OnValues(it->second, AnswerOf(it->second, frame.header), *values)) {
    case Verdict::kTaken: return End(it, Status::Ok(), frame.header, now_us);
    case Verdict::kStale: return TryLater(it->second, now_us);
    case Verdict::kMalformed: return link_.Reopen(now_us);
  }
}

void ShardLink::OnError(Frame it, const wire::InFrame& frame, int64_t now_us) {
  Result<wire::ErrorView> error = wire::DecodeError(frame.header, frame.body());
  if (!error.ok()) return link_.Reopen(now_us);
  const Status status(error->code == Code::kOk ? Code::kInternal : error->code, std::string(error->text));
  if (status.code() == Code::kRetired) return listener_.OnLinkFatal(status, now_us);
  if (status.code() == Code::kUnavailable || status.code() == Code::kResourceExhausted) {
    return TryLater(it->second, now_us);
  }
  // The frame was damaged on the way, or the peer takes it for that: a fresh connection, and all again.
  if (status.code() == Code::kProtocol && ++damaged_ < kMostDamaged)
    return link_.Reopen(now_us, status.message());
  const Request::Kind kind = it->second.kind;
  if (kind == Request::Kind::kPull) return End(it, status, frame.header, now_us);
  // A round of a dropped table is over. Any other error has closed no round and used up no number:
  // the others would wait for this part for ever, and nothing behind it could be applied.
  const bool may_be_gone = IsRound(kind) || kind == Request::Kind::kClock;
  if (may_be_gone && status.code() == Code::kNotFound) return End(it, status, frame.header, now_us);
  const char* what =
      kind == Request::Kind::kPush ? " can't take a numbered push" : " can't take a contribution";
  listener_.OnLinkFatal(status.With(Describe() + what), now_us);
}

// Numbered pushes behind this one are refused too: all of them wait. Others are on their own.
void ShardLink::TryLater(Outgoing& frame, int64_t now_us) {
  int64_t& due = frame.kind == Request::Kind::kPush ? rewind_us_ : marked_us_;
  frame.again = true;
  if (due == 0) due = now_us + link_.Pause();
}

}  // namespace cairn::client

// Connection, sending and resending. shard_answers.cc has the answers, shard_moves.cc what a new
// slot map does to the queue.
#include "client/links/shard_link.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"

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

}  // namespace

ShardLink::ShardLink(Peer peer, const ClientCoreOptions& options, Network& network, BufferPool& pool,
                     SlotBook& book, LinksByConn& by_conn, Listener& listener)
    : peer_(std::move(peer)),
      options_(options),
      network_(network),
      pool_(pool),
      book_(book),
      by_conn_(by_conn),
      listener_(listener),
      backoff_(options.reconnect_min_us, options.reconnect_max_us,
               Mix64(options.seed, 2 + (uint64_t{peer_.server} << 16) + peer_.thread)) {}

void ShardLink::Connect(int64_t now_us) {
  phase_ = Phase::kConnecting;
  since_us_ = now_us;
  conn_ = network_.Connect(peer_.endpoint);
  by_conn_[conn_] = this;
}

void ShardLink::Stop() {
  if (conn_.value != 0) network_.Close(conn_);
  by_conn_.erase(conn_);
  conn_ = {};
  phase_ = Phase::kOff;
  queue_.clear();
}

void ShardLink::Reopen(int64_t now_us) {
  if (phase_ == Phase::kOff) return;
  if (conn_.value != 0) network_.Close(conn_);
  ForgetConnection(now_us);
}

void ShardLink::ForgetConnection(int64_t now_us) {
  by_conn_.erase(conn_);
  conn_ = {};
  phase_ = Phase::kWaiting;
  retry_us_ = now_us + backoff_.Next();
  answer_size_.Reset();
  sent_through_ = 0;
  bulk_progress_ = 0;
  counted_ = parked_ = 0;
  rewind_us_ = marked_us_ = 0;
  rewound_.clear();
  reopen_ = false;
  memory_.OnGone();
}

void ShardLink::OnDisconnect(int64_t now_us) {
  if (phase_ != Phase::kOff) ForgetConnection(now_us);
}

void ShardLink::OnConnected(int64_t now_us) {
  if (phase_ != Phase::kConnecting) return;
  phase_ = Phase::kGreeting;
  since_us_ = now_us;
  wire::Hello hello;
  hello.cluster_id = peer_.cluster_id;
  hello.incarnation = peer_.worker;
  hello.server_incarnation = peer_.server_incarnation;
  hello.thread = peer_.thread;
  network_.Send(conn_, wire::EncodeControl(hello, pool_));
}

void ShardLink::Ready(int64_t now_us) {
  phase_ = Phase::kReady;
  since_us_ = oldest_us_ = now_us;
  trouble_.clear();
  backoff_.Reset();
  memory_.OnReady(network_.FellBack(conn_), now_us);
  for (auto& [id, frame] : queue_) {
    if (frame.sends > 0) return Rewind(now_us);
  }
  Pump(now_us);
}

void ShardLink::Tell(const wire::ControlMessage& message) {
  if (ready()) network_.Send(conn_, wire::EncodeControl(message, pool_));
}

void ShardLink::OnTick(int64_t now_us) {
  switch (phase_) {
    case Phase::kOff: return;
    case Phase::kWaiting:
      if (now_us >= retry_us_) Connect(now_us);
      return;
    case Phase::kConnecting:
    case Phase::kGreeting:
      if (now_us - since_us_ >= options_.resend_after_us) Reopen(now_us);
      return;
    case Phase::kReady: break;
  }
  if (rewind_us_ != 0 && now_us >= rewind_us_) return Rewind(now_us);
  if (marked_us_ != 0 && now_us >= marked_us_ && rewind_us_ == 0) SendMarked(now_us);  // else all are sent again soon
  NoteProgress(now_us);
  if (Silent(now_us) || memory_.Due(queue_.empty(), now_us)) return Reopen(now_us);
  Pump(now_us);
}

// While large frames move, those behind them can't be answered: their time begins anew.
void ShardLink::NoteProgress(int64_t now_us) {
  const uint64_t progress = network_.BulkProgress(conn_);
  if (progress == bulk_progress_) return;
  bulk_progress_ = progress;
  oldest_us_ = now_us;
  for (auto& [id, frame] : queue_) {
    if (id > sent_through_) break;
    frame.heard_us = now_us;
  }
}

bool ShardLink::Silent(int64_t now_us) const {
  if (rewind_us_ != 0) return false;  // it has answered: later
  if (counted_ > 0 && now_us - oldest_us_ >= options_.resend_after_us) return true;
  if (parked_ == 0) return false;
  for (const auto& [id, frame] : queue_) {
    if (id > sent_through_) break;
    if (frame.parks && now_us - frame.heard_us >= kParkedFactor * options_.resend_after_us) return true;
  }
  return false;
}

void ShardLink::Enqueue(uint64_t id, Outgoing frame, int64_t now_us) {
  CAIRN_CHECK(queue_.empty() || queue_.rbegin()->first < id);
  if (phase_ == Phase::kOff) return;
  queue_.emplace_hint(queue_.end(), id, std::move(frame));
  Pump(now_us);
}

// Frames that park are outside the bound: a round is answered only when all of it has come.
void ShardLink::Pump(int64_t now_us) {
  if (phase_ != Phase::kReady || rewind_us_ != 0) return;
  for (auto it = queue_.upper_bound(sent_through_); it != queue_.end(); ++it) {
    Outgoing& frame = it->second;
    if (frame.parks) {
      ++parked_;
    } else {
      if (counted_ >= options_.max_unacked_frames || TooFarAhead(frame)) {
        CAIRN_AT_BOUND(kUnackedFrames);
        return;
      }
      if (counted_++ == 0) oldest_us_ = now_us;
    }
    sent_through_ = it->first;
    SendOne(frame, now_us);
  }
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
  network_.Send(conn_, frame.frame);
}

void ShardLink::Rewind(int64_t now_us) {
  ++rewinds_;
  sent_through_ = 0;
  counted_ = parked_ = 0;
  rewind_us_ = marked_us_ = 0;
  Pump(now_us);
}

void ShardLink::SendMarked(int64_t now_us) {
  marked_us_ = 0;
  bool oldest = true;
  if (CAIRN_BUG(kRerouteUnordered)) {
    for (auto it = queue_.rbegin(); it != queue_.rend(); ++it)
      if (it->first <= sent_through_ && it->second.again) SendOne(it->second, now_us);
  }
  for (auto& [id, frame] : queue_) {
    if (id > sent_through_) break;
    if (oldest && !frame.parks) {
      oldest = false;
      if (frame.again) oldest_us_ = now_us;
    }
    if (frame.again) SendOne(frame, now_us);
  }
}

bool ShardLink::OldestCounted(Queue::const_iterator it) const {
  return std::all_of(queue_.begin(), it, [](const auto& earlier) { return earlier.second.parks; });
}

Outgoing ShardLink::TakeOut(Queue::iterator it, uint32_t answers) {
  if (it->first <= sent_through_) --(it->second.parks ? parked_ : counted_);
  Outgoing frame = std::move(it->second);
  queue_.erase(it);
  if (frame.sends > answers) answer_size_.LetGo(frame.answer_bytes);
  return frame;
}

void ShardLink::Drop(uint64_t id) {
  auto it = queue_.find(id);
  if (it != queue_.end()) TakeOut(it, 0);
}

void ShardLink::DisownBorrowed(uint64_t id, int64_t now_us) {
  auto it = queue_.find(id);
  if (it == queue_.end() || !it->second.borrows) return;
  wire::FramePtr old = std::move(it->second.frame);
  it->second.frame = WithOwnValues(*old, pool_);
  it->second.borrows = false;
  if (old.use_count() > 1) Reopen(now_us);
}

void ShardLink::End(Queue::iterator it, const Status& outcome, const wire::FrameHeader& answer,
                    int64_t now_us) {
  backoff_.Reset();
  damaged_ = 0;
  if (!it->second.parks && OldestCounted(it)) oldest_us_ = now_us;
  const Outgoing frame = TakeOut(it, 1);
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
ShardLink::Listener::Answer ShardLink::AnswerOf(const Outgoing& frame,
                                             const wire::FrameHeader& answer) {
  const uint64_t asked_under = frame.frame->header().state_version;
  const uint64_t said = answer.state_version;
  return {answer.flags, StateVersion{said == 0 ? asked_under : said}};
}

// Values are covered by the checksum where they cross a network.
void ShardLink::Seal(wire::Frame& frame) const {
  const bool one_host = wire::IsLoopback(peer_.endpoint) || network_.SharesMemory(conn_);
  if (!one_host) frame.header().flags |= wire::kFlagValuesChecked;
  wire::Seal(frame);
}

uint64_t ShardLink::MostBodyBytes(const wire::FrameHeader& header) const {
  const auto it = queue_.find(header.request_id);
  const bool waits = it != queue_.end();
  return answer_size_.MostBytes(header, waits ? std::optional(it->second.answer_bytes) : std::nullopt,
                                book_.size());
}

std::string ShardLink::Describe() const {
  return "server " + std::to_string(peer_.server) + " thread " + std::to_string(peer_.thread) + " at " +
         wire::ToString(peer_.endpoint);
}

std::string ShardLink::Trouble() const {
  if (phase_ == Phase::kReady) return "";
  return trouble_.empty() ? "not connected" : trouble_;
}

}  // namespace cairn::client

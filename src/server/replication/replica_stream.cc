#include "server/replication/replica_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "base/bounds.h"
#include "base/check.h"
#include "wire/data.h"

namespace cairn::server {
namespace {

uint64_t SizeOf(const wire::InFrame& frame) { return sizeof(wire::FrameHeader) + frame.storage.size(); }

}  // namespace

ReplicaSender::ReplicaSender(ReplicaRoute route, const ReplicaStreamTimes& times, Network& network,
                             BufferPool& pool, SendersByConn& by_conn, Listener& listener)
    : route_(std::move(route)),
      times_(times),
      network_(network),
      pool_(pool),
      by_conn_(by_conn),
      listener_(listener),
      backoff_(times.reconnect, std::nullopt),
      batch_(pool) {}

ReplicaSender::~ReplicaSender() { Stop(); }

void ReplicaSender::Start(int64_t now_us) {
  if (phase_ == Phase::kOff) Connect(now_us);
}

void ReplicaSender::Stop() {
  if (conn_.value != 0) network_.Close(conn_);
  by_conn_.erase(conn_);
  conn_ = {};
  phase_ = Phase::kOff;
  queue_.Clear();
  unconfirmed_bytes_ = 0;
}

void ReplicaSender::Connect(int64_t now_us) {
  phase_ = Phase::kConnecting;
  progress_us_ = now_us;
  bulk_progress_ = 0;
  conn_ = network_.Connect(route_.endpoint);
  by_conn_[conn_] = this;
}

void ReplicaSender::Reopen(std::string why, int64_t now_us) {
  trouble_ = std::move(why);
  if (conn_.value != 0) network_.Close(conn_);
  ForgetConnection(now_us);
}

void ReplicaSender::ForgetConnection(int64_t now_us) {
  by_conn_.erase(conn_);
  conn_ = {};
  memory_.OnGone();
  phase_ = Phase::kWaiting;
  retry_us_ = now_us + backoff_.Next();
}

void ReplicaSender::OnDisconnect(int64_t now_us) {
  if (phase_ == Phase::kOff || conn_.value == 0) return;
  if (phase_ == Phase::kConnecting || trouble_.empty()) trouble_ = "it can't be reached";
  ForgetConnection(now_us);
}

void ReplicaSender::OnConnected(int64_t now_us) {
  if (phase_ != Phase::kConnecting) return;
  phase_ = Phase::kGreeting;
  progress_us_ = now_us;
  wire::ReplicaHello hello;
  hello.cluster_id = route_.cluster_id;
  hello.from_server = route_.from_server;
  hello.from_thread = route_.from_thread;
  hello.from_incarnation = route_.from_incarnation;
  hello.to_incarnation = route_.to_incarnation;
  hello.to_thread = route_.to_thread;
  network_.Send(conn_, wire::EncodeControl(hello, pool_));
}

void ReplicaSender::OnTick(int64_t now_us) {
  if (phase_ == Phase::kOff) return;
  if (phase_ == Phase::kWaiting) {
    if (now_us >= retry_us_) Connect(now_us);
    return;
  }
  if (phase_ == Phase::kReady) {
    // While large frames move, those behind them can't be confirmed: their time begins anew.
    const uint64_t bulk = network_.BulkProgress(conn_);
    if (queue_.empty() || bulk != bulk_progress_) progress_us_ = now_us;
    bulk_progress_ = bulk;
    if (memory_.Due(queue_.empty(), now_us)) {
      Reopen("", now_us);
      return Connect(now_us);
    }
  }
  if (now_us - progress_us_ >= times_.resend_after_us) Reopen("it does not answer", now_us);
}

void ReplicaSender::OnMessage(const wire::InFrame& frame, int64_t now_us) {
  if (phase_ != Phase::kGreeting && phase_ != Phase::kReady) return;
  switch (frame.header.type) {
    case wire::FrameType::kControl: return OnControl(frame, now_us);
    case wire::FrameType::kReplicaAck: return OnAck(frame, now_us);
    case wire::FrameType::kError: {
      const Result<wire::ErrorView> error = wire::DecodeError(frame.header, frame.body());
      return Reopen(error.ok() ? std::string(error->text) : error.status().message(), now_us);
    }
    default: return Reopen("it sends what is no part of replication", now_us);
  }
}

void ReplicaSender::OnControl(const wire::InFrame& frame, int64_t now_us) {
  const Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) return Reopen(message.status().message(), now_us);
  if (const auto* reply = std::get_if<wire::ReplicaHelloReply>(&*message)) {
    if (phase_ == Phase::kGreeting) OnGreeted(reply->received, now_us);
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&*message)) {
    // Not ready for us, or not the server that the state means: the scheduler will say.
    Reopen(refusal->text, now_us);
  }
}

// The reply says where to go on. It does not confirm: it can't name the slots that were refused in
// frames whose confirmation was lost. The first confirmation on this connection does.
void ReplicaSender::OnGreeted(uint64_t received, int64_t now_us) {
  if (received < confirmed_ || received > last_number()) {
    return Reopen("it says that it has " + std::to_string(received) + " frames of this stream; it has " +
                      "confirmed " + std::to_string(confirmed_) + " of the " + std::to_string(last_number()) +
                      " sent",
                  now_us);
  }
  phase_ = Phase::kReady;
  progress_us_ = now_us;
  trouble_.clear();
  memory_.OnReady(network_.FellBack(conn_), now_us);
  queue_.SendAgainBehind(received);
  SendUnsent();
}

void ReplicaSender::SendUnsent() {
  const auto may_send = [](const Unconfirmed&) { return true; };  // what is kept is bounded
  queue_.SendUnsent(may_send, [&](Unconfirmed& frame) {
    if (std::exchange(frame.sent, true)) ++resent_frames_;
    network_.Send(conn_, frame.frame);
  });
}

void ReplicaSender::Flush(uint64_t state_version, int64_t now_us) {
  if (batch_.empty()) return;
  const bool one_host = wire::IsLoopback(route_.endpoint) || network_.SharesMemory(conn_);
  using Body = wire::OpBatch::Body;
  const uint64_t number = next_++;
  wire::FramePtr frame = batch_.Take(number, route_.from_incarnation.value, state_version,
                                     one_host ? Body::kUnchecked : Body::kChecked);
  if (queue_.empty() && phase_ == Phase::kReady) progress_us_ = now_us;
  unconfirmed_bytes_ += frame->bytes();
  sent_bytes_ += frame->bytes();
  queue_.Add(number, {std::move(frame), now_us});
  if (phase_ == Phase::kReady) SendUnsent();
}

// One for less than is known is an old copy, or was overtaken: what it refuses is named in the later
// one too, or has been taken since.
void ReplicaSender::OnAck(const wire::InFrame& frame, int64_t now_us) {
  const auto refused = wire::DecodeReplicaAck(frame.header, frame.body());
  if (!refused.ok()) return Reopen(refused.status().message(), now_us);
  const uint64_t up_to = frame.header.request_id;
  if (up_to < confirmed_) return;
  if (up_to > last_number()) {
    return Reopen(
        "it confirms frame " + std::to_string(up_to) + ", the last sent is " + std::to_string(last_number()),
        now_us);
  }
  const bool news = up_to > confirmed_;
  while (confirmed_ < up_to) {
    unconfirmed_bytes_ -= queue_.Take(queue_.begin()).frame->bytes();
    ++confirmed_;
  }
  CAIRN_CHECK(queue_.size() == last_number() - confirmed_);  // what is not confirmed is kept, and no more
  if (news) progress_us_ = confirmed_us_ = now_us;
  if (news || queue_.empty()) backoff_.Reset();
  if (news || !refused->empty()) listener_.OnConfirmed(*this, up_to, *refused, now_us);
}

int64_t ReplicaSender::oldest_unconfirmed_us(int64_t now_us) const {
  return queue_.empty() ? 0 : now_us - std::max(queue_.begin()->second.flushed_us, confirmed_us_);
}

std::string ReplicaSender::Describe() const {
  return "server " + std::to_string(route_.to_server) + " thread " + std::to_string(route_.to_thread) +
         " at " + wire::ToString(route_.endpoint);
}

ReplicaReceiver::Verdict ReplicaReceiver::Take(const wire::FrameHeader& header) const {
  if (header.request_id <= received_) return Verdict::kDuplicate;
  return header.request_id == received_ + 1 ? Verdict::kNext : Verdict::kGap;
}

void ReplicaReceiver::Taken() {
  ++received_;
  if (auto it = held_.find(received_); it != held_.end()) {
    held_bytes_ -= SizeOf(it->second);
    held_.erase(it);
  }
}

void ReplicaReceiver::Hold(wire::InFrame& frame, uint64_t most_bytes) {
  const uint64_t number = frame.header.request_id;
  if (number <= received_ || held_.contains(number)) return;
  // The earliest are worth the most: the last ones make room for them.
  while (!held_.empty() && held_bytes_ + SizeOf(frame) > most_bytes) {
    CAIRN_AT_BOUND(kHeldBytes);
    auto last = std::prev(held_.end());
    if (last->first < number) return;
    held_bytes_ -= SizeOf(last->second);
    held_.erase(last);
  }
  held_bytes_ += SizeOf(frame);
  held_.emplace(number, std::move(frame));
}

std::optional<wire::InFrame> ReplicaReceiver::NextHeld(StateVersion have) {
  auto it = held_.find(received_ + 1);
  if (it == held_.end() || it->second.header.state_version > have.value) return std::nullopt;
  wire::InFrame frame = std::move(it->second);
  held_bytes_ -= SizeOf(frame);
  held_.erase(it);
  return frame;
}

void ReplicaReceiver::Refuse(SlotId slot, uint64_t newer_epoch) { refused_[slot.value] = newer_epoch; }

void ReplicaReceiver::Accept(SlotId slot) {
  if (!refused_.empty()) refused_.erase(slot.value);
}

wire::FramePtr ReplicaReceiver::MakeAck(StateVersion version, BufferPool& pool) const {
  std::vector<wire::SlotEntry> refused;
  for (const auto& [slot, epoch] : refused_) refused.push_back({slot, 0, epoch});
  return wire::EncodeReplicaAck(received_, refused, version.value, pool);
}

wire::FramePtr ReplicaReceiver::MakeHelloReply(BufferPool& pool) const {
  return wire::EncodeControl(wire::ReplicaHelloReply{wire::kProtocolVersion, received_}, pool);
}

}  // namespace cairn::server

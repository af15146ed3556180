#include "server/replication/replica_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "base/bounds.h"
#include "base/check.h"
#include "base/random.h"
#include "wire/data.h"

namespace cairn::server {
namespace {

uint64_t SizeOf(const wire::InFrame& frame) { return sizeof(wire::FrameHeader) + frame.storage.size(); }

uint64_t SeedOf(const ReplicaRoute& route) {
  return Mix64(Mix64(route.from_incarnation.value, route.from_thread),
               Mix64(route.to_incarnation.value, route.to_thread));
}

}  // namespace

ReplicaSender::ReplicaSender(ReplicaRoute route, const PeerLink::Times& times, Network& network,
                             BufferPool& pool, SendersByConn& by_conn, Listener& listener)
    : route_(std::move(route)),
      by_conn_(by_conn),
      listener_(listener),
      link_(route_.endpoint, times, SeedOf(route_), network, pool, *this),
      batch_(pool) {}

ReplicaSender::~ReplicaSender() { Stop(); }

void ReplicaSender::Start(int64_t now_us) {
  if (!link_.on()) link_.Start(now_us);
}

void ReplicaSender::Stop() {
  link_.Stop();
  queue_.Clear();
  unconfirmed_bytes_ = 0;
}

wire::ControlMessage ReplicaSender::Hello() const {
  wire::ReplicaHello hello;
  hello.cluster_id = route_.cluster_id;
  hello.from_server = route_.from_server;
  hello.from_thread = route_.from_thread;
  hello.from_incarnation = route_.from_incarnation;
  hello.to_incarnation = route_.to_incarnation;
  hello.to_thread = route_.to_thread;
  return hello;
}

bool ReplicaSender::Overdue(int64_t limit_us, int64_t now_us) const {
  return !queue_.empty() && now_us - progress_us_ >= limit_us;
}

void ReplicaSender::OnMessage(const wire::InFrame& frame, int64_t now_us) {
  if (!link_.greeting() && !ready()) return;
  switch (frame.header.type) {
    case wire::FrameType::kControl: return OnControl(frame, now_us);
    case wire::FrameType::kReplicaAck: return OnAck(frame, now_us);
    case wire::FrameType::kError: {
      const Result<wire::ErrorView> error = wire::DecodeError(frame.header, frame.body());
      return link_.Reopen(now_us, error.ok() ? std::string(error->text) : error.status().message());
    }
    default: return link_.Reopen(now_us, "it sends what is no part of replication");
  }
}

void ReplicaSender::OnControl(const wire::InFrame& frame, int64_t now_us) {
  const Result<wire::ControlMessage> message = wire::DecodeControl(frame.header, frame.body());
  if (!message.ok()) return link_.Reopen(now_us, message.status().message());
  if (const auto* reply = std::get_if<wire::ReplicaHelloReply>(&*message)) {
    if (link_.greeting()) OnGreeted(reply->received, now_us);
  } else if (const auto* refusal = std::get_if<wire::Refusal>(&*message)) {
    // Not ready for us, or not the server that the state means: the scheduler will say.
    link_.Reopen(now_us, refusal->text);
  }
}

// The reply says where to go on. It does not confirm: it can't name the slots that were refused in
// frames whose confirmation was lost. The first confirmation on this connection does.
void ReplicaSender::OnGreeted(uint64_t received, int64_t now_us) {
  if (received < confirmed_ || received > last_number()) {
    return link_.Reopen(now_us, "it says that it has " + std::to_string(received) +
                                    " frames of this stream; it has confirmed " + std::to_string(confirmed_) +
                                    " of the " + std::to_string(last_number()) + " sent");
  }
  queue_.SendAgainBehind(received);
  link_.Greeted(now_us);
}

void ReplicaSender::OnReady(int64_t now_us) {
  progress_us_ = now_us;
  SendUnsent();
}

void ReplicaSender::SendUnsent() {
  const auto may_send = [](const Unconfirmed&) { return true; };  // what is kept is bounded
  queue_.SendUnsent(may_send, [&](Unconfirmed& frame) {
    if (std::exchange(frame.sent, true)) ++resent_frames_;
    link_.Send(frame.frame);
  });
}

void ReplicaSender::Flush(uint64_t state_version, int64_t now_us) {
  if (batch_.empty()) return;
  using Body = wire::OpBatch::Body;
  const uint64_t number = next_++;
  wire::FramePtr frame = batch_.Take(number, route_.from_incarnation.value, state_version,
                                     link_.OneHost() ? Body::kUnchecked : Body::kChecked);
  if (queue_.empty()) progress_us_ = now_us;
  unconfirmed_bytes_ += frame->bytes();
  sent_bytes_ += frame->bytes();
  queue_.Add(number, {std::move(frame), now_us});
  if (ready()) SendUnsent();
}

// One for less than is known is an old copy, or was overtaken: what it refuses is named in the later
// one too, or has been taken since.
void ReplicaSender::OnAck(const wire::InFrame& frame, int64_t now_us) {
  const auto refused = wire::DecodeReplicaAck(frame.header, frame.body());
  if (!refused.ok()) return link_.Reopen(now_us, refused.status().message());
  const uint64_t up_to = frame.header.request_id;
  if (up_to < confirmed_) return;
  if (up_to > last_number()) {
    return link_.Reopen(now_us, "it confirms frame " + std::to_string(up_to) + ", the last sent is " +
                                    std::to_string(last_number()));
  }
  const bool news = up_to > confirmed_;
  while (confirmed_ < up_to) {
    unconfirmed_bytes_ -= queue_.Take(queue_.begin()).frame->bytes();
    ++confirmed_;
  }
  CAIRN_CHECK(queue_.size() == last_number() - confirmed_);  // what is not confirmed is kept, and no more
  if (news) {
    progress_us_ = confirmed_us_ = now_us;
    link_.Answered();
  }
  if (news || !refused->empty()) listener_.OnConfirmed(*this, up_to, *refused, now_us);
}

int64_t ReplicaSender::oldest_unconfirmed_us(int64_t now_us) const {
  return queue_.empty() ? 0 : now_us - std::max(queue_.begin()->second.flushed_us, confirmed_us_);
}

std::string ReplicaSender::Describe() const {
  return "server " + std::to_string(route_.to_server) + " thread " + std::to_string(route_.to_thread) +
         " at " + wire::ToString(route_.endpoint);
}

std::string ReplicaSender::Trouble() const {
  if (ready()) return "";
  return link_.trouble().empty() ? "it does not answer" : link_.trouble();
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

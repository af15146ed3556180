#include "server/shard/worker_connections.h"

#include <string>
#include <utility>
#include <variant>

#include "base/planted.h"
#include "wire/data.h"
#include "wire/state_exchange.h"

namespace cairn::server {

Status WorkerConnections::OnHello(ConnId conn, const wire::Hello& hello) {
  if (Status s = CheckHello(hello); !s.ok()) return s;
  connections_[conn] = hello.incarnation;
  const wire::HelloReply reply{wire::kProtocolVersion, context_.version()};
  outbox_.Send(conn, wire::EncodeControl(reply, context_.pool()));
  return Status::Ok();
}

const Incarnation* WorkerConnections::Find(ConnId conn) const {
  auto known = connections_.find(conn);
  return known == connections_.end() ? nullptr : &known->second;
}

Status WorkerConnections::CheckHello(const wire::Hello& hello) const {
  if (hello.protocol_min > wire::kProtocolVersion || hello.protocol_max < wire::kProtocolVersion) {
    return {Code::kProtocol, "speaks protocol " + std::to_string(wire::kProtocolVersion) + ", the worker " +
                                 std::to_string(hello.protocol_min) + " to " +
                                 std::to_string(hello.protocol_max) + ": use the same release everywhere"};
  }
  if (!context_.registered() || !context_.has_state()) return {Code::kUnavailable, "not registered yet"};
  if (!hello.cluster_id.empty() && hello.cluster_id != context_.state().cluster_id) {
    return {Code::kProtocol,
            "belongs to cluster " + context_.state().cluster_id + ", the worker to " + hello.cluster_id};
  }
  if (hello.server_incarnation != context_.incarnation() || hello.thread != context_.options().thread) {
    return {Code::kProtocol, "is thread " + std::to_string(context_.options().thread) + " of incarnation " +
                                 std::to_string(context_.incarnation().value) +
                                 ", the worker asks for thread " + std::to_string(hello.thread) +
                                 " of incarnation " + std::to_string(hello.server_incarnation.value)};
  }
  if (clients_.Find(hello.incarnation) != nullptr) return Status::Ok();
  if (hello.incarnation >= context_.state().next_incarnation)
    return {Code::kUnavailable, "has not heard of this worker yet"};
  return {Code::kRetired, "incarnation " + std::to_string(hello.incarnation.value) +
                              " has left or was declared dead: restart the process"};
}

Status WorkerConnections::Fence(const wire::InFrame& frame, const LiveClient** client) {
  Status fenced = CheckFrame(frame.header, client);
  if (!fenced.ok()) TellFenced(frame, fenced);
  return fenced;
}

Status WorkerConnections::CheckFrame(const wire::FrameHeader& header, const LiveClient** client) {
  if (!context_.has_state()) return {Code::kUnavailable, context_.name() + " has no state yet"};
  if (context_.state().phase == wire::Phase::kFailed) return context_.EndOfJob();
  const Incarnation incarnation{header.incarnation};
  *client = clients_.Find(incarnation);
  if (*client == nullptr && incarnation >= context_.state().next_incarnation)
    return {Code::kUnavailable, context_.name() + " has not heard of this worker yet"};
  if (*client == nullptr && CAIRN_BUG(kForgetWatermark) && header.type == wire::FrameType::kPush)
    *client = clients_.Admit(incarnation);
  if (*client == nullptr) {
    return {Code::kRetired, "incarnation " + std::to_string(incarnation.value) +
                                " has left or was declared dead: restart the process"};
  }
  if (header.state_version > context_.version().value) {
    return {Code::kUnavailable, context_.name() + " has state " + std::to_string(context_.version().value) +
                                    ", the frame was made under " + std::to_string(header.state_version)};
  }
  return context_.EndOfJob();
}

void WorkerConnections::TellFenced(const wire::InFrame& frame, const Status& why) const {
  const wire::FrameHeader& header = frame.header;
  if (context_.observer() == nullptr || why.code() != Code::kRetired) return;
  if (header.type != wire::FrameType::kPush) return;
  Result<wire::PushView> push = wire::DecodePush(header, frame.body());
  if (!push.ok()) return;
  for (const wire::SlotEntry& entry : push->entries) {
    context_.observer()->OnPush(SlotId{entry.slot}, Incarnation{header.incarnation}, Seq{entry.number},
                                TableId{header.table}, Outcome::kRetired, why.code(), {}, {},
                                push->params.hyper(), Position{});
  }
}

// Whatever a worker has was told by a scheduler, so it is durable; the server's control side takes it for all
// shards.
bool WorkerConnections::ComparesStates(ConnId conn, wire::ControlMessage& message) {
  if (const auto* at = std::get_if<wire::StateAt>(&message)) {
    if (CAIRN_BUG(kStatesNotPassed)) return true;
    if (auto answer = wire::AnswerTo(*at, context_.state()))
      outbox_.Send(conn, wire::EncodeControl(*answer, context_.pool()));
    return true;
  }
  auto* passed = std::get_if<wire::StateMessage>(&message);
  if (passed == nullptr) return false;
  const StateVersion newest = passed_ ? passed_->version : context_.version();
  const auto& slots = context_.state().slots;
  const bool same_slots = slots.empty() || passed->state.slots.size() == slots.size();
  if (passed->state.version <= newest || !same_slots) return true;
  passed_ = std::make_shared<const wire::ClusterState>(std::move(passed->state));
  news_.Raise();
  return true;
}

void WorkerConnections::OnState() {
  if (passed_ && passed_->version <= context_.version()) passed_ = nullptr;
}

}  // namespace cairn::server

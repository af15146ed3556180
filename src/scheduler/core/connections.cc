// Which node is on which connection, and what goes out on it.
#include <map>
#include <utility>

#include "base/bounds.h"
#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {
// A state that is on its way is not sent again before this.
constexpr int64_t kResendStateUs = 500'000;
// While a job forms, every arrival is a record, which nobody needs before the last one: so many nodes are
// told at once, more of them together and so often.
constexpr size_t kFewNodes = 16;
constexpr int64_t kFormingGapUs = 500'000;
}  // namespace

void SchedulerCore::Send(ConnId conn, const wire::ControlMessage& message) {
  if (fatal_.ok()) network_.Send(conn, wire::EncodeControl(message, pool_));
}

void SchedulerCore::Refuse(ConnId conn, Code code, std::string text, uint64_t request) {
  Send(conn, wire::Refusal{request, code, std::move(text)});
}

void SchedulerCore::RefuseNode(ConnId conn, Incarnation incarnation, Code code, std::string text) {
  auto it = bound_.find(conn);
  if (it == bound_.end() || it->second == incarnation) Refuse(conn, code, std::move(text));
}

SchedulerCore::Live* SchedulerCore::FindLive(Incarnation incarnation) {
  auto it = live_.find(incarnation);
  return it == live_.end() ? nullptr : &it->second;
}
const SchedulerCore::Live* SchedulerCore::FindLive(Incarnation incarnation) const {
  return const_cast<SchedulerCore*>(this)->FindLive(incarnation);
}

void SchedulerCore::Bind(Incarnation incarnation, ConnId conn, int64_t now_us) {
  Live& node = live_[incarnation];
  const int64_t isolated_us = hearing_.IsolatedUs(now_us);
  hearing_.Hear(incarnation, network_.SameHost(conn) ? Hearing::Where::kThisHost : Hearing::Where::kElsewhere,
                now_us);
  if (isolated_us > 0 && !hearing_.isolated())
    log_("nodes are heard again: everybody gets " + Seconds(hearing_.GraceUs(isolated_us)) + " to come back");
  if (node.silent) awaiting_stale_ = true;
  node.silent = node.told_needed = false;
  // Its newest connection is the one that it reads.
  if (node.conn.value >= conn.value) return;
  if (node.conn != ConnId(0)) {
    bound_.erase(node.conn);
    network_.Close(node.conn);
  }
  Unbind(conn, now_us);  // a connection speaks for one node at a time
  bound_[conn] = incarnation;
  node.closed_us = -1;
  node.conn = conn;
  node.state_sent = StateVersion(0);
}

void SchedulerCore::Unbind(ConnId conn, int64_t now_us) {
  auto it = bound_.find(conn);
  if (it == bound_.end()) return;
  if (Live* node = FindLive(it->second)) {
    node->conn = ConnId(0);
    node->closed_us = now_us;
  }
  bound_.erase(it);
}

// Beyond the bound at once, or one that opens many would have them all until the next tick.
void SchedulerCore::NoteCaller(ConnId conn, int64_t now_us) {
  if (bound_.contains(conn)) return callers_.Forget(conn);
  callers_.Heard(conn, now_us);
  if (callers_.size() > options_.max_callers) CloseLateCallers(now_us);
}

void SchedulerCore::CloseLateCallers(int64_t now_us) {
  for (ConnId conn : callers_.TakeLate(now_us)) network_.Close(conn);
}

bool SchedulerCore::HoldsStatesBack(int64_t now_us) const {
  return durable_.forming() && live_.size() > kFewNodes && now_us - told_us_ < kFormingGapUs;
}

void SchedulerCore::Broadcast(int64_t now_us) {
  if (!untold_ || HoldsStatesBack(now_us)) return;
  untold_ = false;
  told_us_ = now_us;
  // Servers first: if this process ends in the middle, workers hear of it from them (rule 55).
  for (const wire::Role role : {wire::Role::kServer, wire::Role::kWorker}) {
    for (auto& [incarnation, node] : live_) {
      if (node.conn == ConnId(0) || node.version >= state().version) continue;
      const NodeRecord* record = durable_.FindNode(incarnation);
      if ((record != nullptr ? record->role : wire::Role::kWorker) != role) continue;
      // Whoever has not got what was sent before says so with its next heartbeat.
      network_.Send(node.conn,
                    StateFrame(node.state_sent != StateVersion(0) ? node.state_sent : node.version));
      node.state_sent = state().version;
      node.state_sent_us = now_us;
    }
  }
  recent_.push_back(state());
  if (recent_.size() > options_.bounds.recent_states) recent_.pop_front();
}

// A state that was told not long ago, if the newest can be told as a difference to it.
const wire::ClusterState* SchedulerCore::FindRecent(StateVersion version) const {
  for (const wire::ClusterState& recent : recent_)
    if (recent.version == version && recent.slots.size() == state().slots.size()) return &recent;
  return nullptr;
}

// The newest state for a node that has this version; one encoding for all who have the same.
const wire::FramePtr& SchedulerCore::StateFrame(StateVersion has) {
  if (frames_of_ != state().version) state_frames_.clear();
  frames_of_ = state().version;
  const wire::ClusterState* base = FindRecent(has);
  const bool full = recent_.size() >= options_.bounds.recent_states;
  if (base == nullptr && has != StateVersion(0) && full) CAIRN_AT_BOUND(kRecentStates);
  wire::FramePtr& frame = state_frames_[base != nullptr ? base->version : StateVersion(0)];
  if (!frame) {
    frame = base != nullptr ? wire::EncodeControl(wire::Difference(*base, state()), pool_)
                            : wire::EncodeControl(wire::StateMessage{state()}, pool_);
  }
  return frame;
}

void SchedulerCore::SendStateIfBehind(Live& node, int64_t now_us) {
  if (node.conn == ConnId(0) || node.version >= state().version || HoldsStatesBack(now_us)) return;
  if (node.state_sent == state().version && now_us - node.state_sent_us < kResendStateUs) return;
  // What it says it has is what it has: nothing of what was sent since can be relied on.
  if (fatal_.ok()) network_.Send(node.conn, StateFrame(node.version));
  node.state_sent = state().version;
  node.state_sent_us = now_us;
}

}  // namespace cairn::scheduler

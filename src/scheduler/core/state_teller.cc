#include "scheduler/core/state_teller.h"

#include <algorithm>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "wire/control.h"

namespace cairn::scheduler {
namespace {
// A state that is on its way is not sent again before this.
constexpr int64_t kResendStateUs = 500'000;
// While a job forms, every arrival is a record, which nobody needs before the last one: so many nodes are
// told at once, more of them together and so often.
constexpr size_t kFewNodes = 16;
constexpr int64_t kFormingGapUs = 500'000;
}  // namespace

bool StateTeller::Take(Incarnation id, StateVersion version) {
  Node& node = nodes_[id];
  const bool newer = version > node.holds;
  node.holds = std::max(node.holds, version);
  return newer;
}

void StateTeller::WarnIfAhead(Incarnation id, const std::string& name, StateVersion version) {
  Node& node = nodes_[id];
  if (version <= journal_.state().version || node.told_ahead) return;
  node.told_ahead = true;
  log_(name + " holds version " + std::to_string(version.value) + " of the state, and the log ends at " +
       std::to_string(journal_.state().version.value) +
       ": the log has lost records, so this job can't be trusted");
}

StateVersion StateTeller::Holds(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? StateVersion(0) : it->second.holds;
}

bool StateTeller::ServersHold(StateVersion version) const {
  const auto& servers = journal_.state().servers;
  return std::all_of(servers.begin(), servers.end(),
                     [&](const wire::ServerInfo& server) { return Holds(server.incarnation) >= version; });
}

bool StateTeller::HasBeenSent(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it != nodes_.end() && it->second.sent == journal_.state().version;
}

bool StateTeller::HoldsBack(int64_t now_us) const {
  return journal_.durable().forming() && connections_.nodes().size() > kFewNodes &&
         now_us - told_us_ < kFormingGapUs;
}

void StateTeller::Broadcast(int64_t now_us) {
  if (!untold_ || HoldsBack(now_us)) return;
  untold_ = false;
  told_us_ = now_us;
  const wire::ClusterState& state = journal_.state();
  CAIRN_CHECK(recent_.empty() || recent_.back().version < state.version);
  // Servers first: if this process ends in the middle, workers hear of it from them (rule 55).
  for (const wire::Role role : {wire::Role::kServer, wire::Role::kWorker}) {
    for (const auto& [id, connection] : connections_.nodes()) {
      if (connection.conn == ConnId(0)) continue;
      Node& node = nodes_[id];
      if (node.holds >= state.version) continue;
      const NodeRecord* record = journal_.durable().FindNode(id);
      if ((record != nullptr ? record->role : wire::Role::kWorker) != role) continue;
      // Whoever has not got what was sent before says so with its next heartbeat.
      SendTo(connection.conn, node, node.sent != StateVersion(0) ? node.sent : node.holds, now_us);
    }
  }
  recent_.push_back(state);
  if (recent_.size() > recent_states_) recent_.pop_front();
}

void StateTeller::SendTo(ConnId conn, Node& node, StateVersion has, int64_t now_us) {
  CAIRN_CHECK(node.sent <= journal_.state().version);
  connections_.Send(conn, FrameFor(has));
  node.sent = journal_.state().version;
  node.sent_us = now_us;
}

// A state that was told not long ago, if the newest can be told as a difference to it.
const wire::ClusterState* StateTeller::FindRecent(StateVersion version) const {
  for (const wire::ClusterState& recent : recent_)
    if (recent.version == version && recent.slots.size() == journal_.state().slots.size()) return &recent;
  return nullptr;
}

// The newest state for a node that has this version; one encoding for all who have the same.
const wire::FramePtr& StateTeller::FrameFor(StateVersion has) {
  const wire::ClusterState& state = journal_.state();
  if (frames_of_ != state.version) frames_.clear();
  frames_of_ = state.version;
  const wire::ClusterState* base = FindRecent(has);
  const bool full = recent_.size() >= recent_states_;
  if (base == nullptr && has != StateVersion(0) && full) CAIRN_AT_BOUND(kRecentStates);
  wire::FramePtr& frame = frames_[base != nullptr ? base->version : StateVersion(0)];
  if (!frame) {
    frame = base != nullptr ? connections_.Encode(wire::Difference(*base, state))
                            : connections_.Encode(wire::StateMessage{state});
  }
  return frame;
}

void StateTeller::SendIfBehind(Incarnation id, int64_t now_us) {
  const ConnId conn = connections_.Of(id);
  if (conn == ConnId(0)) return;
  Node& node = nodes_[id];
  if (node.holds >= journal_.state().version || HoldsBack(now_us)) return;
  if (node.sent == journal_.state().version && now_us - node.sent_us < kResendStateUs) return;
  // What it says it has is what it has: nothing of what was sent since can be relied on.
  SendTo(conn, node, CAIRN_BUG(kSentIsHeld) ? node.sent : node.holds, now_us);
}

void StateTeller::SendToAllBehind(int64_t now_us) {
  for (const wire::ServerInfo& server : journal_.state().servers) SendIfBehind(server.incarnation, now_us);
  for (const wire::WorkerInfo& worker : journal_.state().workers) SendIfBehind(worker.incarnation, now_us);
}

}  // namespace cairn::scheduler

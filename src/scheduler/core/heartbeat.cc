// Heartbeats: what nodes say every second, and the barriers that are counted from it.
#include <algorithm>
#include <map>
#include <tuple>

#include "base/planted.h"
#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kRateWindowUs = 1'000'000;
// No round comes near this; a report beyond it is not from one of our servers.
constexpr uint64_t kMaxRound = uint64_t{1} << 62;
// A report has one entry for each sync table.
bool IsSane(const std::vector<wire::TableRound>& rounds) {
  return rounds.size() <= kMaxTables &&
         std::all_of(rounds.begin(), rounds.end(),
                     [](const wire::TableRound& r) { return r.round.value < kMaxRound; });
}

}  // namespace

void SchedulerCore::OnHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, int64_t now_us) {
  auto known = by_uid_.find(heartbeat.uid);
  const NodeRecord* node = known == by_uid_.end() ? nullptr : durable_.FindNode(known->second);
  if (node == nullptr || node->incarnation != heartbeat.incarnation || node->fate != NodeFate::kLive)
    return RefuseHeartbeat(conn, heartbeat, node);
  Bind(node->incarnation, conn, now_us);
  Live& live = live_[node->incarnation];
  TakeReport(live, heartbeat, now_us);
  if (node->role == wire::Role::kServer) TakeOwnersReport(live, node->rank, heartbeat, now_us);
  if (heartbeat.version > state().version && !live.told_ahead) {
    live.told_ahead = true;
    log_((node->role == wire::Role::kServer ? "server " : "worker ") + std::to_string(node->rank) +
         " holds version " + std::to_string(heartbeat.version.value) + " of the state, and the log ends at " +
         std::to_string(state().version.value) + ": the log has lost records, so this job can't be trusted");
  }
  SendStateIfBehind(live, now_us);
  Send(conn, ReplyNow());
}

void SchedulerCore::RefuseHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, const NodeRecord* node) {
  if (node != nullptr && node->incarnation == heartbeat.incarnation) {
    if (node->fate == NodeFate::kLeft) return Send(conn, wire::LeaveReply{node->incarnation});
    return RefuseNode(conn, heartbeat.incarnation, Code::kRetired,
                      "this node was declared dead or replaced: restart its process");
  }
  const NodeRecord* owner = durable_.FindNode(heartbeat.incarnation);
  const bool listed = owner != nullptr && owner->fate == NodeFate::kLive;
  if (!listed && heartbeat.incarnation < state().next_incarnation)
    return RefuseNode(conn, heartbeat.incarnation, Code::kRetired,
                      "this node was declared dead or replaced: restart its process");
  RefuseNode(conn, heartbeat.incarnation, Code::kUnavailable,
             "this scheduler does not know the node: register again");
}

void SchedulerCore::TakeReport(Live& node, const wire::Heartbeat& heartbeat, int64_t now_us) {
  // Heartbeats may overtake each other on different connections: nothing here goes back.
  const uint64_t count = std::max(node.barrier_count, heartbeat.barrier_count);
  if (!node.heard || count != node.barrier_count) awaiting_stale_ = barrier_stale_ = true;
  node.heard = true;
  node.barrier_count = count;
  unsettled_ |= heartbeat.version > node.version && !requests_.empty();  // tables wait for confirmations
  node.version = std::max(node.version, heartbeat.version);
  node.end_confirmed |= heartbeat.end_confirmed;
  const bool newer_report =
      std::tie(heartbeat.hold_view, heartbeat.hold_version) > std::tie(node.hold_view, node.hold_version);
  if (newer_report && IsSane(heartbeat.open_rounds)) {
    node.hold_view = heartbeat.hold_view;
    node.hold_version = heartbeat.hold_version;
    node.open_rounds = heartbeat.open_rounds;
    // Every server reports for every state; who is awaited depends on it only while a view is pending.
    unsettled_ = true;
    awaiting_stale_ |= state().pending_view != ViewNumber(0);
  }
  TakeRates(node, heartbeat.stats, now_us);
}

void SchedulerCore::TakeRates(Live& node, const wire::NodeStats& stats, int64_t now_us) {
  node.stats = stats;
  if (node.rate_base_us == 0) {
    node.rate_base = stats;
    node.rate_base_us = now_us;
    return;
  }
  const int64_t elapsed = now_us - node.rate_base_us;
  if (elapsed < kRateWindowUs) return;
  const double seconds = static_cast<double>(elapsed) * 1e-6;
  auto rate = [&](uint64_t after, uint64_t before) {
    return after >= before ? static_cast<double>(after - before) / seconds : 0.0;
  };
  node.pushes_per_s = rate(stats.pushes, node.rate_base.pushes);
  node.pulls_per_s = rate(stats.pulls, node.rate_base.pulls);
  node.bytes_per_s =
      rate(stats.bytes_in, node.rate_base.bytes_in) + rate(stats.bytes_out, node.rate_base.bytes_out);
  node.rate_base = stats;
  node.rate_base_us = now_us;
}

// A server that has become the primary of a slot since must report again, for that slot too.
std::vector<uint32_t> SchedulerCore::ServersNotHolding() const {
  std::map<uint32_t, StateVersion> newest;  // by server: since when it has all the slots of now
  for (const wire::SlotOwner& slot : state().slots)
    newest[slot.server] = std::max(newest[slot.server], slot.since);
  std::vector<uint32_t> servers;
  for (const wire::ServerInfo& server : state().servers) {
    const Live* live = FindLive(server.incarnation);
    const bool holds = live != nullptr && live->hold_view == state().pending_view &&
                       (live->hold_version >= newest[server.index] || CAIRN_BUG(kViewWithoutReport));
    if (!holds) servers.push_back(server.index);
  }
  return servers;
}

uint64_t SchedulerCore::BarrierOpen() {
  if (!std::exchange(barrier_stale_, false)) return barrier_open_;
  std::optional<uint64_t> smallest;
  for (const wire::WorkerInfo& worker : state().workers) {
    if (worker.join_view == ViewNumber(0)) continue;
    const Live* live = FindLive(worker.incarnation);
    const bool heard = live != nullptr && live->heard;
    if (!heard && CAIRN_BUG(kBarrierForgotten)) continue;
    const uint64_t count = heard ? live->barrier_count : 0;
    smallest = std::min(smallest.value_or(count), count);
  }
  return barrier_open_ = smallest.value_or(0);
}

std::optional<uint64_t> SchedulerCore::SmallestCount(std::optional<Rank> except, uint32_t* unheard) const {
  std::optional<uint64_t> smallest;
  for (const wire::WorkerInfo& worker : state().workers) {
    if (except == worker.rank) continue;
    const Live* live = FindLive(worker.incarnation);
    if (live == nullptr || !live->heard) {
      if (worker.join_view == ViewNumber(0)) continue;  // has entered none yet
      *unheard = worker.rank.value;
      return std::nullopt;
    }
    smallest = std::min(smallest.value_or(live->barrier_count), live->barrier_count);
  }
  return smallest.value_or(0);
}

wire::HeartbeatReply SchedulerCore::ReplyNow() {
  const std::string& awaiting = Awaiting();
  return {state().term, state().version, BarrierOpen(), awaiting, blocked_slots_,
          static_cast<uint32_t>(options_.heartbeat_us / 1000)};
}

// Whoever waits in a barrier should not wait for its next heartbeat as well.
void SchedulerCore::TellBarrier() {
  const uint64_t open = BarrierOpen();
  if (open > barrier_told_) {
    const wire::FramePtr frame = wire::EncodeControl(ReplyNow(), pool_);
    for (const wire::WorkerInfo& worker : state().workers)
      if (const Live* live = FindLive(worker.incarnation); live != nullptr && live->conn != ConnId(0))
        network_.Send(live->conn, frame);
  }
  barrier_told_ = open;
}

}  // namespace cairn::scheduler

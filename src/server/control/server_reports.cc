// States to the shards, their reports back, and the end of the job: a server leaves when every one
// of its shards has seen the end and the scheduler has been told (docs/internals/consistency.md, rule 10).
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "server/control/server_control_impl.h"

namespace cairn::server {
namespace {
// Of one heartbeat, so that it stays well below what a scheduler takes (1 MiB) whatever the cluster.
constexpr size_t kMostNews = 1024;
constexpr size_t kMostLoads = 4096;

void AddRound(std::vector<wire::TableRound>& rounds, const wire::TableRound& round) {
  auto it = std::lower_bound(rounds.begin(), rounds.end(), round,
                             [](auto& a, auto& b) { return a.table < b.table; });
  if (it == rounds.end() || it->table != round.table) {
    rounds.insert(it, round);
  } else {
    it->round = std::max(it->round, round.round);
  }
}

void AddSampled(std::vector<wire::SampledTable>& sum, const wire::SampledTable& sampled) {
  auto it = std::find_if(sum.begin(), sum.end(), [&](auto& s) { return s.table == sampled.table; });
  if (it == sum.end()) {
    sum.push_back(sampled);
  } else {
    it->count += sampled.count;
  }
}

void AddStats(wire::NodeStats& sum, const wire::NodeStats& stats) {
  sum.pushes += stats.pushes;
  sum.pulls += stats.pulls;
  sum.rounds = std::max(sum.rounds, stats.rounds);  // the same rounds, seen by every shard
  sum.bytes_in += stats.bytes_in;
  sum.bytes_out += stats.bytes_out;
  sum.rows += stats.rows;
  sum.memory_bytes += stats.memory_bytes;
  sum.dense_bytes += stats.dense_bytes;
  sum.connections += stats.connections;
  sum.replicated_bytes += stats.replicated_bytes;
  sum.unconfirmed_bytes += stats.unconfirmed_bytes;
  // Of one worker's trip every shard that it touches sees a part: the most of one shard is nearest.
  sum.round_trips = std::max(sum.round_trips, stats.round_trips);
}

bool Over(const wire::ClusterState& state) {
  return state.phase == wire::Phase::kEnded || state.phase == wire::Phase::kFailed;
}
}  // namespace

MergedReport Merge(const std::vector<ShardReport>& reports) {
  MergedReport merged;
  if (reports.empty()) return merged;
  merged.version = reports[0].version;
  merged.hold_view = reports[0].hold_view;
  for (const ShardReport& report : reports) {
    merged.version = std::min(merged.version, report.version);
    if (report.hold_view != merged.hold_view) merged.hold_view = ViewNumber{0};
    AddStats(merged.stats, report.stats);
    merged.reusable_bytes += report.reusable_bytes;
    merged.news.insert(merged.news.end(), report.news.begin(), report.news.end());
    merged.loads.insert(merged.loads.end(), report.loads.begin(), report.loads.end());
    merged.hot.rows.insert(merged.hot.rows.end(), report.hot.rows.begin(), report.hot.rows.end());
    for (const wire::SampledTable& sampled : report.hot.sampled) AddSampled(merged.hot.sampled, sampled);
    for (const wire::StalledRound& round : report.stalled) wire::AddStalled(merged.stalled, round);
  }
  BoundHotReport(merged.hot);
  if (merged.hold_view == ViewNumber{0}) return merged;
  for (const ShardReport& report : reports)
    for (const wire::TableRound& round : report.hold_rounds) AddRound(merged.hold_rounds, round);
  return merged;
}

void ServerControlImpl::OnReports(const std::vector<ShardReport>& reports, int64_t now_us) {
  if (finished_) return;
  for (const ShardReport& report : reports)
    if (report.passed_state) TakePassed(report.passed_state);
  if (finished_) return;
  MergedReport merged = Merge(reports);
  const bool changed = merged.version != report_.version || merged.hold_view != report_.hold_view ||
                       merged.hold_rounds != report_.hold_rounds || merged.news != report_.news;
  report_ = std::move(merged);
  if (!ending_ && state_ && Over(*state_) && report_.version >= state_->version) {
    ending_ = true;
    ending_since_us_ = now_us;
    if (connected() && known_) Say(now_us);
    return;
  }
  if (changed && connected() && known_) Say(now_us);
}

void ServerControlImpl::OnState(wire::ClusterState state, int64_t now_us) {
  if (!known_ || state.cluster_id != cluster_id_) return;
  if (!Heard(state.term, now_us) || (state_ && state.version <= state_->version)) return;
  SetState(std::make_shared<const wire::ClusterState>(std::move(state)));
}

// From a worker, which had it from a scheduler that is silent now. It says nothing of whether one lives.
void ServerControlImpl::TakePassed(const std::shared_ptr<const wire::ClusterState>& state) {
  if (!known_ || state->cluster_id != cluster_id_ || state->term < term_) return;
  if (state_ == nullptr || state->version <= state_->version) return;
  term_ = state->term;
  Log("took state " + std::to_string(state->version.value) + " from a worker: the scheduler is silent");
  SetState(state);
}

void ServerControlImpl::SetState(std::shared_ptr<const wire::ClusterState> state) {
  state_ = std::move(state);
  if (CAIRN_BUG(kServerLeavesEarly) && !state_->done_ranks.empty()) return Finish(Status::Ok());
  events_.on_state(state_);
}

void ServerControlImpl::Drain(int64_t now_us) {
  if (leaving_ || finished_) return;
  leaving_ = true;
  if (!known_ || CAIRN_BUG(kLeavesUndrained)) return Finish(Status::Ok());
  Log("leaving: its partitions move to other servers first");
  if (connected()) Say(now_us);
}

void ServerControlImpl::LeaveJob() {
  if (state_->phase == wire::Phase::kEnded) return Finish(Status::Ok());
  Finish({Code::kJobFailed, state_->failure});
}

wire::Heartbeat ServerControlImpl::MakeBriefHeartbeat() const {
  wire::Heartbeat heartbeat;
  heartbeat.incarnation = incarnation_;
  heartbeat.uid = options_.uid;
  heartbeat.version = report_.version;
  heartbeat.end_confirmed = ending_;
  heartbeat.stats = report_.stats;
  if (options_.memory_left) {
    heartbeat.stats.memory = options_.memory_left();
    heartbeat.stats.memory.bytes += report_.reusable_bytes;
  }
  heartbeat.leaving = leaving_;
  return heartbeat;
}

wire::Heartbeat ServerControlImpl::MakeHeartbeat() {
  wire::Heartbeat heartbeat = MakeBriefHeartbeat();
  heartbeat.hold_view = report_.hold_view;
  heartbeat.open_rounds = report_.hold_rounds;
  heartbeat.hold_version = report_.version;
  heartbeat.hot_rows = report_.hot.rows;
  heartbeat.sampled = report_.hot.sampled;
  // News are repeated until the state has them: the first ones make room for the others.
  heartbeat.news.assign(report_.news.begin(),
                        report_.news.begin() + static_cast<int64_t>(std::min(report_.news.size(), kMostNews)));
  const size_t loads = std::min(report_.loads.size(), kMostLoads);
  if (next_load_ >= report_.loads.size()) next_load_ = 0;
  for (size_t i = 0; i < loads; ++i)
    heartbeat.loads.push_back(report_.loads[(next_load_ + i) % report_.loads.size()]);
  next_load_ += loads;
  heartbeat.stalled = report_.stalled;
  return heartbeat;
}

}  // namespace cairn::server

#include "server/control/server_reports.h"

#include <algorithm>
#include <utility>

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
}  // namespace

ServerReports::Merged ServerReports::Merge(const std::vector<ShardReport>& reports) {
  Merged merged;
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

bool ServerReports::Take(const std::vector<ShardReport>& reports) {
  Merged merged = Merge(reports);
  const bool changed = merged.version != merged_.version || merged.hold_view != merged_.hold_view ||
                       merged.hold_rounds != merged_.hold_rounds || merged.news != merged_.news;
  merged_ = std::move(merged);
  return changed;
}

void ServerReports::FillBrief(wire::Heartbeat& heartbeat) const {
  heartbeat.version = merged_.version;
  heartbeat.stats = merged_.stats;
}

void ServerReports::Fill(wire::Heartbeat& heartbeat) {
  heartbeat.hold_view = merged_.hold_view;
  heartbeat.open_rounds = merged_.hold_rounds;
  heartbeat.hold_version = merged_.version;
  heartbeat.hot_rows = merged_.hot.rows;
  heartbeat.sampled = merged_.hot.sampled;
  // News are repeated until the state has them: the first ones make room for the others.
  const size_t news = std::min(merged_.news.size(), kMostNews);
  heartbeat.news.assign(merged_.news.begin(), merged_.news.begin() + static_cast<int64_t>(news));
  const size_t loads = std::min(merged_.loads.size(), kMostLoads);
  if (next_load_ >= merged_.loads.size()) next_load_ = 0;
  for (size_t i = 0; i < loads; ++i)
    heartbeat.loads.push_back(merged_.loads[(next_load_ + i) % merged_.loads.size()]);
  next_load_ += loads;
  heartbeat.stalled = merged_.stalled;
}

}  // namespace cairn::server

#include "scheduler/core/load_reports.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "wire/stalled_rounds.h"

namespace cairn::scheduler {
namespace {
constexpr int64_t kRateWindowUs = 1'000'000;
constexpr size_t kHotRowsShown = 10;  // of a table
}  // namespace

const LoadReports::Node* LoadReports::Find(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second;
}

const LoadReports::Load& LoadReports::Of(Incarnation id) const {
  static const Load kNothing;
  const Node* node = Find(id);
  return node != nullptr ? node->load : kNothing;
}

void LoadReports::Take(Incarnation id, const wire::Heartbeat& heartbeat, int64_t now_us) {
  Node& node = nodes_[id];
  const wire::NodeStats& stats = heartbeat.stats;
  node.load.stats = stats;
  node.load.staleness = heartbeat.staleness;
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
  node.load.pushes_per_s = rate(stats.pushes, node.rate_base.pushes);
  node.load.pulls_per_s = rate(stats.pulls, node.rate_base.pulls);
  node.load.bytes_per_s =
      rate(stats.bytes_in, node.rate_base.bytes_in) + rate(stats.bytes_out, node.rate_base.bytes_out);
  node.rate_base = stats;
  node.rate_base_us = now_us;
}

void LoadReports::TakeRows(Incarnation server, const wire::Heartbeat& heartbeat, int64_t now_us) {
  Node& node = nodes_[server];
  node.hot_rows = heartbeat.hot_rows;
  node.sampled = heartbeat.sampled;
  node.stalled = heartbeat.stalled;
  node.stalled_us = now_us;
}

std::vector<ServerMemory> LoadReports::MemoryOfServers(const wire::ClusterState& state) const {
  std::vector<ServerMemory> servers;
  for (const wire::ServerInfo& server : state.servers) {
    const wire::NodeStats& stats = Of(server.incarnation).stats;
    servers.push_back({server.index, stats.memory, stats.dense_bytes});
  }
  return servers;
}

// Only a slot's primary counts: another owner may have been it a moment ago.
std::map<TableId, std::vector<LoadReports::HotRowShare>> LoadReports::HottestRows(
    const wire::ClusterState& state) const {
  std::map<TableId, double> totals;
  std::map<TableId, std::vector<HotRowShare>> rows;
  const auto slots = static_cast<uint32_t>(state.slots.size());
  if (slots == 0) return rows;
  for (const wire::ServerInfo& server : state.servers) {
    const Node* node = Find(server.incarnation);
    if (node == nullptr) continue;
    for (const wire::SampledTable& table : node->sampled)
      totals[table.table] += static_cast<double>(table.count);
    for (const wire::HotRow& row : node->hot_rows) {
      const uint32_t slot = wire::SlotOfKey(row.key, slots).value;
      if (state.slots[slot].server != server.index) continue;
      rows[row.table].push_back({row.key, static_cast<double>(row.count), slot, server.index});
    }
  }
  for (auto& [table, hottest] : rows) {
    std::sort(hottest.begin(), hottest.end(), [](const HotRowShare& a, const HotRowShare& b) {
      return a.share != b.share ? a.share > b.share : a.key < b.key;
    });
    if (hottest.size() > kHotRowsShown) hottest.resize(kHotRowsShown);
    const double total = totals[table];
    for (HotRowShare& row : hottest)
      row.share = total > 0 ? std::min(1.0, std::round(row.share / total * 1e5) / 1e5) : 0;
  }
  return rows;
}

std::vector<wire::StalledRound> LoadReports::StalledRounds(const wire::ClusterState& state,
                                                           int64_t now_us) const {
  std::vector<wire::StalledRound> rounds;
  for (const wire::ServerInfo& server : state.servers) {
    const Node* node = Find(server.incarnation);
    if (node == nullptr) continue;
    for (wire::StalledRound round : node->stalled) {
      const int64_t waited_ms = round.waited_ms + (now_us - node->stalled_us) / 1000;
      round.waited_ms = static_cast<uint32_t>(std::min<int64_t>(waited_ms, UINT32_MAX));
      if (state.FindTable(round.table) != nullptr) wire::AddStalled(rounds, std::move(round));
    }
  }
  return rounds;
}

}  // namespace cairn::scheduler

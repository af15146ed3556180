// What the shard's slots weigh and cost, the rows that are asked for most, and the rounds that are waited
// for: for the heartbeats.
#include <algorithm>
#include <map>
#include <utility>

#include "server/shard/shard_impl.h"

namespace cairn::server {
namespace {
constexpr int64_t kAgeEveryUs = 1'000'000;
constexpr int64_t kStalledAfterUs = 2'000'000;
constexpr size_t kMostLookedAt = 1024;
}

const RowWeights& ShardImpl::Weigh() const {
  if (!weights_.Due(tables_.size() * slots_.size(), context_.now_us())) return weights_;
  weights_.Begin(context_.now_us());
  for (const auto& [id, table] : tables_)
    for (uint32_t local = 0; local < table.rows.size(); ++local)
      if (table.rows[local]) weights_.Add(local, table.sparse(), *table.rows[local]);
  return weights_;
}

std::vector<wire::SlotLoad> ShardImpl::loads() const {
  std::vector<wire::SlotLoad> loads;
  const RowWeights& weights = Weigh();
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    const OwnedSlot& slot = slots_[local];
    if (slot.role != OwnedSlot::Role::kPrimary) continue;
    loads.push_back({slot.id.value, weights.content_bytes(local), slot.work.requests, slot.work.pushed,
                     slot.work.pulled});
  }
  return loads;
}

Shard::HotReport ShardImpl::hot_rows() const {
  HotReport report;
  for (const auto& [id, table] : tables_)
    if (const auto total = static_cast<uint64_t>(table.hot.total()); total > 0)
      report.sampled.push_back({id, total});
  BoundHotReport(report);
  for (const wire::SampledTable& sampled : report.sampled)
    for (const HotRows::Row& row : tables_.at(sampled.table).hot.Hottest(kHotRowsOfATable))
      report.rows.push_back({sampled.table, row.key, static_cast<uint64_t>(row.count)});
  BoundHotReport(report);
  return report;
}

// Who waits longest is looked at first. In a round that stands still thousands may wait.
std::vector<wire::StalledRound> ShardImpl::stalled() const {
  std::vector<wire::StalledRound> rounds;
  size_t looked_at = 0;
  for (const auto& [id, request] : parked_.all()) {
    const int64_t waited_us = context_.now_us() - request.since_us;
    if (waited_us < kStalledAfterUs || ++looked_at > kMostLookedAt) break;
    const TableState& table = tables_.at(TableId{request.header.table});
    const uint32_t local = WaitsAt(table, request);
    const SlotRound& round = table.rounds[local];
    std::vector<uint32_t> missing = round.MissingRanks(slots_[local].id, table.marks);
    const auto count = static_cast<uint32_t>(missing.size());
    const auto waited_ms = static_cast<uint32_t>(std::min<int64_t>(waited_us / 1000, UINT32_MAX));
    wire::AddStalled(rounds, {table.info.id, round.open(), waited_ms, count, std::move(missing)});
  }
  return rounds;
}

void ShardImpl::AgeHotRows(int64_t now_us) {
  if (now_us - hot_aged_us_ < kAgeEveryUs) return;
  hot_aged_us_ = now_us;
  for (auto& [id, table] : tables_) table.hot.Age();
}

// Those with the most of each table, in as many tables as there is room for; by table, then by count.
void BoundHotReport(Shard::HotReport& report) {
  std::sort(report.sampled.begin(), report.sampled.end(), [](const auto& a, const auto& b) {
    return a.count != b.count ? a.count > b.count : a.table < b.table;
  });
  if (report.sampled.size() > wire::kMaxSampledTables) report.sampled.resize(wire::kMaxSampledTables);
  std::sort(report.rows.begin(), report.rows.end(), [](const auto& a, const auto& b) {
    return a.count != b.count ? a.count > b.count : std::pair(a.table, a.key) < std::pair(b.table, b.key);
  });
  std::map<TableId, size_t> rows;
  std::erase_if(report.rows, [&](const auto& row) { return ++rows[row.table] > kHotRowsOfATable; });
  if (report.rows.size() > wire::kMaxHotRows) report.rows.resize(wire::kMaxHotRows);
}

}  // namespace cairn::server

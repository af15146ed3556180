// What the shard's slots weigh and cost, the rows that are asked for most, and the rounds that are waited
// for: for the heartbeats.
#include <algorithm>
#include <map>
#include <utility>

#include "server/shard/shard_impl.h"

namespace cairn::server {
namespace {
constexpr int64_t kStalledAfterUs = 2'000'000;
constexpr size_t kMostLookedAt = 1024;
}

// Who waits longest is looked at first. In a round that stands still thousands may wait.
std::vector<wire::StalledRound> ShardImpl::stalled() const {
  std::vector<wire::StalledRound> rounds;
  size_t looked_at = 0;
  for (const auto& [id, request] : parked_.all()) {
    const int64_t waited_us = context_.now_us() - request.since_us;
    if (waited_us < kStalledAfterUs || ++looked_at > kMostLookedAt) break;
    const TableState& table = tables_.all().at(TableId{request.header.table});
    const uint32_t local = WaitsAt(table, request);
    const SlotRound& round = table.rounds[local];
    std::vector<uint32_t> missing = round.MissingRanks(slots_[local].id, table.rounds.marks());
    const auto count = static_cast<uint32_t>(missing.size());
    const auto waited_ms = static_cast<uint32_t>(std::min<int64_t>(waited_us / 1000, UINT32_MAX));
    wire::AddStalled(rounds, {table.info.id, round.open(), waited_ms, count, std::move(missing)});
  }
  return rounds;
}

}  // namespace cairn::server

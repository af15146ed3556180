// Lookups in the state, and the pure functions that say where keys and elements lie. Those are part
// of the format: every node of every release computes the same (tests freeze some results).
#include "wire/cluster_state.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace cairn::wire {
namespace {

constexpr uint64_t kSmallestBlock = 1024;
constexpr uint64_t kLargestBlock = 16 * 1024;
constexpr uint64_t kBlocksWanted = 64;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio

uint32_t ScaleDown(uint64_t fraction, uint32_t n) {
  return static_cast<uint32_t>((static_cast<unsigned __int128>(fraction) * n) >> 64);
}

template <class Items, class Match>
auto* FindIf(const Items& items, Match match) {
  auto it = std::find_if(items.begin(), items.end(), match);
  return it == items.end() ? nullptr : &*it;
}

}  // namespace

bool IsLoopback(const Endpoint& endpoint) {
  return endpoint.host == "localhost" || endpoint.host == "::1" || endpoint.host.starts_with("127.");
}

std::string ToString(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

const TableInfo* ClusterState::FindTable(TableId id) const {
  auto it = std::lower_bound(tables.begin(), tables.end(), id,
                             [](const TableInfo& table, TableId i) { return table.id < i; });
  return it != tables.end() && it->id == id ? &*it : nullptr;
}
const TableInfo* ClusterState::FindTable(const std::string& name) const {
  return FindIf(tables, [&](const TableInfo& table) { return table.spec.name == name; });
}
const WorkerInfo* ClusterState::FindWorker(Incarnation incarnation) const {
  return FindIf(workers, [&](const WorkerInfo& worker) { return worker.incarnation == incarnation; });
}
const ServerInfo* ClusterState::FindServer(uint32_t index) const {
  auto it = std::lower_bound(servers.begin(), servers.end(), index,
                             [](const ServerInfo& server, uint32_t i) { return server.index < i; });
  return it != servers.end() && it->index == index ? &*it : nullptr;
}

const View* ClusterState::FindView(ViewNumber number) const {
  return FindIf(views, [&](const View& v) { return v.number == number; });
}

Round FirstRound(const ClusterState& state, const WorkerInfo& worker, const TableInfo& table) {
  CAIRN_CHECK(worker.join_view != ViewNumber{0});
  // The worker was there before the table: it takes part from the beginning.
  if (table.created_view >= worker.join_view) return Round{0};
  const View* view = state.FindView(worker.join_view);
  if (view == nullptr) return Round{0};
  const TableRound* start = FindIf(view->starts, [&](const TableRound& s) { return s.table == table.id; });
  return start == nullptr ? Round{0} : start->round;
}

SlotId SlotOfKey(RowKey key, uint32_t slot_count) { return SlotId{ScaleDown(Mix64(key), slot_count)}; }

DenseLayout DenseLayout::Of(TableId table, uint64_t size, uint32_t slot_count) {
  CAIRN_CHECK(slot_count > 0);
  DenseLayout layout;
  layout.size = size;
  layout.slot_count = slot_count;
  const uint64_t wanted = std::bit_floor(std::max<uint64_t>(size / kBlocksWanted, 1));
  layout.block = static_cast<uint32_t>(std::clamp(wanted, kSmallestBlock, kLargestBlock));
  layout.start = ScaleDown(Mix64(table.value, 1), slot_count);
  // Steps of the golden ratio spread any number of blocks evenly, over slots and so over the runs
  // of slots that shard threads own. Every other table goes the other way round.
  const uint64_t fraction = (Mix64(table.value, 2) & 1) != 0 ? kGolden : ~kGolden;
  uint32_t stride = ScaleDown(fraction, slot_count) | 1;
  while (std::gcd(stride, slot_count) != 1) stride += 2;
  layout.stride = stride;
  return layout;
}

std::vector<std::vector<DenseRun>> RunsBySlot(const DenseLayout& layout) {
  std::vector<std::vector<DenseRun>> runs(layout.slot_count);
  const uint64_t blocks = layout.block_count();
  for (auto& slot : runs) slot.reserve(blocks / layout.slot_count + 1);
  for (uint64_t b = 0; b < blocks; ++b) {
    const uint64_t begin = b * layout.block;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(layout.block, layout.size - begin));
    runs[layout.SlotOfBlock(b)].push_back({begin, count});
  }
  return runs;
}

}  // namespace cairn::wire

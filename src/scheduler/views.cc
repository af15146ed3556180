// Forming the cluster, and views: which worker takes part from which round on (rules 3 and 6).
#include <algorithm>
#include <map>

#include "base/check.h"
#include "scheduler/rules.h"

namespace cairn::scheduler {

std::vector<uint32_t> MissingRanks(const DurableState& d) {
  std::vector<uint32_t> missing = OpenRanks(d);
  std::erase_if(missing, [&](uint32_t rank) { return rank >= d.state.expected_workers; });
  return missing;
}

std::vector<uint32_t> MissingServers(const DurableState& d) {
  std::vector<uint32_t> missing;
  auto server = d.state.servers.begin();
  for (uint32_t index = 0; index < d.state.expected_servers; ++index) {
    if (server != d.state.servers.end() && server->index == index)
      ++server;
    else
      missing.push_back(index);
  }
  return missing;
}

bool ReadyToForm(const DurableState& d) {
  return d.forming() && !d.state.workers.empty() && d.state.servers.size() == d.state.expected_servers &&
         MissingRanks(d).empty();
}

std::vector<wire::SlotOwner> MakeSlotMap(std::span<const wire::ServerInfo> servers, uint32_t slot_count,
                                         StateVersion since) {
  struct Shard {
    uint16_t thread, server;
  };
  std::vector<Shard> shards;
  uint32_t most_threads = 0;
  for (const wire::ServerInfo& server : servers) most_threads = std::max(most_threads, server.threads);
  for (uint32_t thread = 0; thread < most_threads; ++thread)
    for (const wire::ServerInfo& server : servers)
      if (thread < server.threads)
        shards.push_back({static_cast<uint16_t>(thread), static_cast<uint16_t>(server.index)});
  CAIRN_CHECK(!shards.empty());
  std::vector<wire::SlotOwner> slots(slot_count);
  for (uint64_t i = 0; i < shards.size(); ++i) {
    const uint64_t begin = i * slot_count / shards.size(), end = (i + 1) * slot_count / shards.size();
    for (uint64_t slot = begin; slot < end; ++slot)
      slots[slot] = {shards[i].server, shards[i].thread, /*epoch=*/1, since};
  }
  return slots;
}

void Form(DurableState& d) {
  wire::ClusterState& state = d.state;
  state.slots = MakeSlotMap(state.servers, d.slot_count, state.version);
  state.phase = wire::Phase::kRunning;
  state.view = ViewNumber(1);
  state.views = {wire::View{ViewNumber(1), {}}};
  for (wire::WorkerInfo& worker : state.workers) {
    worker.join_view = state.view;
    d.joined_ranks.insert(worker.rank.value);
  }
}

std::vector<uint32_t> WaitingRanks(const wire::ClusterState& state) {
  std::vector<uint32_t> ranks;
  for (const wire::WorkerInfo& worker : state.workers)
    if (worker.join_view == ViewNumber(0)) ranks.push_back(worker.rank.value);
  return ranks;
}

void BeginView(DurableState& d) {
  CAIRN_CHECK(d.running() && d.state.pending_view == ViewNumber(0));
  d.state.pending_view = d.state.view.Next();
}

// A pending view is always finished, even if everybody who waited for it has died: its number must
// not be used for a second hold, or reports of the first would be taken for the second's.
void FinishView(DurableState& d, std::span<const wire::TableRound> open_rounds) {
  wire::ClusterState& state = d.state;
  CAIRN_CHECK(d.running() && state.pending_view == state.view.Next());
  std::map<TableId, Round> first;
  for (const wire::TableRound& report : open_rounds)
    first[report.table] = std::max(first[report.table], report.round);
  wire::View view{state.pending_view, {}};
  for (const wire::TableInfo& table : state.tables)
    if (table.spec.mode == Mode::kSync) view.starts.push_back({table.id, first[table.id]});
  state.view = view.number;
  state.views.push_back(std::move(view));
  state.pending_view = ViewNumber(0);
  for (wire::WorkerInfo& worker : state.workers) {
    if (worker.join_view != ViewNumber(0)) continue;
    worker.join_view = state.view;
    d.joined_ranks.insert(worker.rank.value);
  }
}

void DropUnusedViews(wire::ClusterState& state) {
  std::erase_if(state.views, [&](const wire::View& view) {
    return view.number != state.view &&
           std::none_of(state.workers.begin(), state.workers.end(),
                        [&](const wire::WorkerInfo& worker) { return worker.join_view == view.number; });
  });
}

}  // namespace cairn::scheduler
